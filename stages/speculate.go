package stages

import "github.com/troupe-ml/troupe/tensorops"

// A step's update needs the norm of the whole gradient, and so a report from every rank. A stage
// that does not wait for the reports applies a predicted update with SpeculativeApply and continues
// to train. Later Commit confirms that update, or Rollback undoes it and applies the correct one.
// Until then the gradients still belong to the step. So only passes that do not touch them may run:
// all forwards except the head's, whose forward adds its projection's gradient.

// SpeculativeApply records the update. It keeps the gradients, and copies of everything that the
// update changes.
func (s *Stage) SpeculativeApply(l *tensorops.List, u Update) {
	for _, h := range s.local {
		if h.param.Frozen {
			continue
		}
		keep(l, &h.before, h.w)
		if h.ema.Valid() {
			keep(l, &h.emaBefore, h.ema)
		}
		for i, t := range h.state {
			if t.Valid() {
				keep(l, &h.stateBefore[i], t)
			}
			if t := h.scales[i]; t.Valid() {
				keep(l, &h.scaleBefore[i], t)
			}
		}
	}
	s.update(l, u, false)
	// GradNorms has added their sums to the whole gradients; forwards of the next step assign rows
	// again.
	s.clearRows(l)
	s.pack(l)
}

// keep records a copy. Its memory is allocated once and then kept.
func keep(l *tensorops.List, to *tensorops.Tensor, from tensorops.Tensor) {
	if !to.Valid() {
		*to = l.AllocLike(from)
	}
	l.Copy(*to, from)
}

// Commit ends the step: its speculative update is confirmed, and the gradients are cleared.
func (s *Stage) Commit(l *tensorops.List) { s.clearWhole(l) }

// Rollback ends a step whose speculative update was wrong. It restores the weights and the state,
// and then applies u, or nothing if u is nil.
func (s *Stage) Rollback(l *tensorops.List, u *Update) {
	for _, h := range s.local {
		if h.param.Frozen {
			continue
		}
		h.w, h.before = h.before, h.w
		h.ema, h.emaBefore = h.emaBefore, h.ema
		for i := range h.state {
			h.state[i], h.stateBefore[i] = h.stateBefore[i], h.state[i]
			h.scales[i], h.scaleBefore[i] = h.scaleBefore[i], h.scales[i]
		}
	}
	if u != nil {
		s.Apply(l, *u)
		return
	}
	s.ClearGrads(l)
	s.round(l)
}

// AbortMicrobatches ends every microbatch in flight as if it had never started.
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
