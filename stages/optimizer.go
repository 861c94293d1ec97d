package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Optimizers.
const (
	AdamW = "adamw"
	SGD   = "sgd"
)

// Optimizer are the constants of the update. Weight decay acts on matrices, not
// on norms and biases.
type Optimizer struct {
	Name              string // AdamW or SGD
	Beta1, Beta2, Eps float64
	Momentum          float64 // SGD; 0: none
	WeightDecay       float64
}

// Parts names the tensors of state that the optimizer keeps for a parameter, as
// checkpoints do.
func (o Optimizer) Parts() []string {
	switch {
	case o.Name == AdamW:
		return []string{"m", "v"}
	case o.Name == SGD && o.Momentum != 0:
		return []string{"momentum"}
	}
	return nil
}

func (o Optimizer) stateParts() int { return len(o.Parts()) }

// Update are the numbers of one step.
type Update struct {
	Count     int     // updates made so far, with this one: AdamW's bias correction
	LR        float64 // learning rate
	GradScale float64 // factor of the accumulated gradients: clipping and the loss's divisor
}

// Norm is the squared norm of one parameter's gradient.
type Norm struct {
	Param   int // Param.Index
	Squared float64
}

// WantsTied is the number of parameters of which gradients must come from other ranks
// before GradNorms.
func (s *Stage) WantsTied() int {
	n := 0
	for _, h := range s.local {
		if h.shared && h.missing() != (Uses{}) {
			n++
		}
	}
	return n
}

// TakeTied takes over a gradient that came from another rank.
func (s *Stage) TakeTied(g TiedGrad) error {
	if g.Param < 0 || g.Param >= len(s.byParam) || s.byParam[g.Param] == nil {
		return fmt.Errorf("%w: tied gradient of parameter %d, which this rank does not hold", ErrInput, g.Param)
	}
	h := s.byParam[g.Param]
	if !h.shared || !h.fits(g) {
		return fmt.Errorf("%w: tied gradient %v of %s, uses %v", ErrInput, g.Grad, h.param.Name, g.Uses)
	}
	h.others = append(h.others, g)
	return nil
}

// GradNorms records the sum of each tied weight's uses, then each parameter's
// squared norm. The values are there when the list has completed: see Norms.
func (s *Stage) GradNorms(l *tensorops.List) {
	for _, h := range s.local {
		s.openBrief(l, h) // which no layer has added to
	}
	s.sumGrads(l)
	for _, h := range s.local {
		if !h.param.Frozen {
			h.sum(l)
		}
	}
	s.addReplicas(l)
	for i, h := range s.local {
		if h.param.Frozen {
			continue
		}
		norm := s.normsT.Columns(i, i+1).View(1)
		switch from, to := s.ownPart(h.param); {
		case to-from == h.param.Len() && !h.splitsGrad:
			l.SquaredNorm(norm, h.g[h.place()])
		case from == to:
			l.Fill(norm, 0)
		default:
			l.SquaredNorm(norm, s.ownGrad(h))
		}
	}
	if len(s.local) > 0 {
		l.Fetch(tensorops.HostBytes(s.norms), s.normsT)
	}
}

// Norms appends the squared norms of the parameters that this rank answers for:
// a tied weight is its first use's. Of a parameter that tensor parallelism splits each
// rank has a part, and of each parameter each replica; the whole's is their sum.
func (s *Stage) Norms(to []Norm) []Norm {
	for i, h := range s.local {
		if h.owner && !h.param.Frozen {
			to = append(to, Norm{h.param.Index, s.norms[i]})
		}
	}
	return to
}

// WeightNorms records the squared norm of the weights that this rank answers for, of each its own part
// where replicas have all of it: the whole's is the sum, as that of the gradients. What it returns
// gives them when the list has completed.
func (s *Stage) WeightNorms(l *tensorops.List) func() []Norm {
	if len(s.local) == 0 {
		return func() []Norm { return nil }
	}
	host := make([]float64, len(s.local))
	all := l.Alloc(tensorops.Float64, len(s.local))
	for i, h := range s.local {
		norm := all.Columns(i, i+1).View(1)
		switch from, to := s.ownPart(h.param); {
		case !h.owner || from == to:
			l.Fill(norm, 0)
		case h.splitsWeight:
			l.SquaredNorm(norm, s.ownWeight(h))
		case to-from == h.param.Len():
			l.SquaredNorm(norm, h.w)
		default:
			l.SquaredNorm(norm, within(h.w, from, to))
		}
	}
	l.Fetch(tensorops.HostBytes(host), all)
	l.Free(all)
	return func() (norms []Norm) {
		for i, h := range s.local {
			if h.owner {
				norms = append(norms, Norm{h.param.Index, host[i]})
			}
		}
		return norms
	}
}

// Apply records the optimizer's update of every parameter and clears the
// gradients.
func (s *Stage) Apply(l *tensorops.List, u Update) {
	s.update(l, u, true)
	s.clearRows(l)
	s.pack(l)
}

// update records the update; clear says whether the gradients are cleared on the way.
func (s *Stage) update(l *tensorops.List, u Update, clear bool) {
	if s.opts.Data.splits() {
		s.updateParts(l, u, clear)
		return
	}
	for _, h := range s.local {
		if !h.param.Frozen {
			s.updateOne(l, u, h, h.w, h.g[h.place()], h.low, clear && !h.brief)
			if clear {
				s.closeBrief(l, h)
			}
		}
	}
}

// updateOne records the update of a parameter's weight, or of a part of it, by its gradient and the
// state that this rank has.
func (s *Stage) updateOne(l *tensorops.List, u Update, h *localParam, w, g, low tensorops.Tensor, clear bool) {
	o, decay := s.opts.Optimizer, 0.0
	if h.param.Decay {
		decay = o.WeightDecay
	}
	if o.Name == AdamW {
		l.AdamW(w, h.state[0], h.state[1], g, tensorops.AdamWOpts{LR: u.LR, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
			WeightDecay: decay, GradScale: u.GradScale, Step: u.Count, ClearGrad: clear, Copy: low})
		return
	}
	l.SGD(w, h.state[0], g, tensorops.SGDOpts{LR: u.LR, Momentum: o.Momentum, WeightDecay: decay, GradScale: u.GradScale, Copy: low})
	if clear {
		l.Fill(g, 0)
	}
}

// ClearGrads records zero gradients, for a step that is skipped.
func (s *Stage) ClearGrads(l *tensorops.List) {
	s.clearWhole(l)
	s.clearRows(l)
}

// clearWhole clears the gradients that are whole, of which each parameter has one.
func (s *Stage) clearWhole(l *tensorops.List) {
	for _, h := range s.local {
		if g := h.g[h.place()]; !h.param.Frozen && !s.closeBrief(l, h) && g.Valid() {
			l.Fill(g, 0)
		}
	}
}

// clearRows clears those by rows.
func (s *Stage) clearRows(l *tensorops.List) {
	for _, h := range s.local {
		for _, rows := range h.rows {
			if rows != nil {
				rows.clear(l)
			}
		}
	}
}
