package stages

import "github.com/troupe-ml/troupe/tensorops"

// A step's update needs the norm of the whole gradient, and so a report of every rank. A
// stage that does not wait for them applies a predicted update with SpeculativeApply and
// trains on. Later Commit lets that update stand, or Rollback undoes it and applies the
// right one. In between the gradients are still the step's: only passes
// that leave them alone may run, which are all forwards but that of the head (its
// projection's gradient is made in the forward pass).

// SpeculativeApply records the update, keeping copies of what it changes, and the gradients.
func (s *Stage) SpeculativeApply(l *tensorops.List, u Update) {
	for _, h := range s.local {
		if h.param.Frozen {
			continue
		}
		keep(l, &h.before, h.w)
		for i, t := range h.state {
			if t.Valid() {
				keep(l, &h.stateBefore[i], t)
			}
		}
	}
	s.update(l, u, false)
	// Their sums are in the whole gradients since GradNorms; forwards of the next step
	// assign rows again.
	s.clearRows(l)
	s.pack(l)
}

// keep records a copy. Its memory is taken once and then kept.
func keep(l *tensorops.List, to *tensorops.Tensor, from tensorops.Tensor) {
	if !to.Valid() {
		*to = l.AllocLike(from)
	}
	l.Copy(*to, from)
}

// Commit ends the step: its speculative update stands, and the gradients are cleared.
func (s *Stage) Commit(l *tensorops.List) { s.clearWhole(l) }

// Rollback ends the step whose speculative update was wrong: weights and state become what
// they were before it, and then u is applied or, where it is nil, nothing.
func (s *Stage) Rollback(l *tensorops.List, u *Update) {
	for _, h := range s.local {
		if h.param.Frozen {
			continue
		}
		h.w, h.before = h.before, h.w
		for i := range h.state {
			h.state[i], h.stateBefore[i] = h.stateBefore[i], h.state[i]
		}
	}
	if u != nil {
		s.Apply(l, *u)
		return
	}
	s.ClearGrads(l)
	s.round(l)
}

// AbortMicrobatches ends every microbatch in flight as if it had never begun.
func (s *Stage) AbortMicrobatches(l *tensorops.List) {
	for _, c := range s.order {
		for _, f := range c.live {
			for _, st := range f.states {
				st.drop(l, true)
			}
			c.release(l, f)
		}
	}
	s.clearRows(l)
}
