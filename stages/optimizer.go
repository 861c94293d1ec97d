package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// The optimizers.
const (
	AdamW = "adamw"
	SGD   = "sgd"
	Muon  = "muon" // of hidden matrices; AdamW of all else
)

// Optimizer holds the constants of the update. Weight decay acts on matrices, not on norms and
// biases.
type Optimizer struct {
	Name              string // AdamW, SGD or Muon
	Beta1, Beta2, Eps float64
	Momentum          float64 // SGD and Muon; 0: none
	WeightDecay       float64
	MuonScale         string // MatchRMSAdamW, also if it is empty, or OriginalScale
	// State is the type in which the state is stored: Float32, BFloat16 or Uint8. Uint8 needs parameters that no tensor group has
	// slices of, and both need memory that the host can address.
	State tensorops.DType
	// EMA is the decay of the moving average of the weights, which is updated after each update; 0: there is none.
	EMA float64
	// Groups have their own settings. A parameter is in one group at most.
	Groups []Group
}

// Parts returns the names of the state tensors that the optimizer keeps for a parameter, as
// checkpoints use them.
func (o Optimizer) Parts(p *Param) []string {
	if o.EMA > 0 && p.LoadRate == 0 {
		return append(o.moments(p), EMAPart)
	}
	return o.moments(p)
}

// moments returns the parts from which an update is computed.
func (o Optimizer) moments(p *Param) []string {
	switch o, _ = o.of(p); {
	case p.LoadRate != 0:
		return nil
	case o.byMuon(p), o.Name == SGD && o.Momentum != 0:
		return []string{"momentum"}
	case o.Name == AdamW, o.Name == Muon:
		return []string{"m", "v"}
	}
	return nil
}

// Update holds the numbers of one step.
type Update struct {
	Count     int     // number of updates including this one, for AdamW's bias correction
	LR        float64 // learning rate
	GradScale float64 // factor for the accumulated gradients: clipping, and division by the number of targets
}

// Norm is the squared norm of one parameter's gradient.
type Norm struct {
	Param   int // Param.Index
	Squared float64
}

// WantsTied returns the number of parameters for which other ranks must send gradients before
// GradNorms.
func (s *Stage) WantsTied() int {
	n := 0
	for _, h := range s.local {
		if h.shared && h.missing() != (Uses{}) {
			n++
		}
	}
	return n
}

// TakeTied takes ownership of a gradient that came from another rank.
func (s *Stage) TakeTied(g TiedGrad) error {
	if g.Param < 0 || g.Param >= len(s.byParam) || s.byParam[g.Param] == nil {
		return fmt.Errorf("%w: got a tied gradient of parameter %d, which this rank does not hold", ErrInput, g.Param)
	}
	h := s.byParam[g.Param]
	if !h.shared || !h.fits(g) {
		return fmt.Errorf("%w: unexpected tied gradient %v of %s, uses %v", ErrInput, g.Grad, h.param.Name, g.Uses)
	}
	h.others = append(h.others, g)
	return nil
}

// GradNorms records the sum of each tied weight's uses, then each parameter's squared norm. After
// the list has completed, Norms returns the values.
func (s *Stage) GradNorms(l *tensorops.List) {
	for _, h := range s.local {
		s.openBrief(l, h) // no layer has added to it
	}
	s.sumGrads(l)
	for _, h := range s.local {
		if !h.param.Frozen {
			h.sum(l)
		}
	}
	s.addReplicas(l)
	s.sumExperts(l)
	s.clearLoads(l)
	for i, h := range s.local {
		if !h.param.descends() {
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

// Norms appends the squared norms of the parameters that this rank reports; a tied weight is
// reported by its first use. If tensor parallelism splits a parameter each rank reports its part,
// and so does each replica. The sum over ranks is the norm of the whole parameter.
func (s *Stage) Norms(to []Norm) []Norm {
	for i, h := range s.local {
		if h.owner && h.param.descends() {
			to = append(to, Norm{h.param.Index, s.norms[i]})
		}
	}
	return to
}

// WeightNorms records the squared norms of the weights that this rank reports. Of a weight that all
// replicas have, each reports its own part. As for gradients, the sum over ranks is the norm of the
// whole weight. After the list has completed, the returned function returns the norms.
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

// Apply records the optimizer's update of every parameter and clears the gradients.
func (s *Stage) Apply(l *tensorops.List, u Update) {
	s.update(l, u, true)
	s.clearRows(l)
	s.pack(l)
}

// update records the update; with clear it also clears the gradients.
func (s *Stage) update(l *tensorops.List, u Update, clear bool) {
	if s.opts.Data.splits() {
		s.updateParts(l, u, clear)
		return
	}
	s.updateAtHomes(l, u, clear)
	for _, h := range s.local {
		if h.param.Frozen {
			continue
		}
		if !s.homed(h) {
			s.updateOne(l, u, h, h.w, h.g[h.place()], h.low, clear && !h.brief)
		}
		if clear {
			s.closeBrief(l, h)
		}
	}
}

// updated returns what this rank updates of a parameter, and its gradient: all that it has, or with ZeRO its part.
func (s *Stage) updated(h *localParam) (w, g tensorops.Tensor) {
	switch from, to := s.ownPart(h.param); {
	case !s.splits(h.param):
		return h.w, h.g[h.place()]
	case h.splitsWeight:
		return s.ownWeight(h), s.ownGrad(h)
	default:
		return within(h.w, from, to), s.ownGrad(h)
	}
}

// updateOne records the update of a parameter's weight, or of a part of it, from its gradient and
// this rank's state.
func (s *Stage) updateOne(l *tensorops.List, u Update, h *localParam, w, g, low tensorops.Tensor, clear bool) {
	if rate := h.param.LoadRate; rate != 0 {
		l.RouteBias(w, g, rate)
		if clear {
			l.Fill(g, 0)
		}
		return
	}
	if t := h.state[0]; t.Valid() && t.DType() != tensorops.Float32 {
		s.updateNarrow(l, u, h, w, g, low, clear)
	} else {
		s.updateFrom(l, u, h, w, h.state, g, low, clear)
	}
	s.average(l, h, w)
}

// updateFrom is updateOne from a state in float32.
func (s *Stage) updateFrom(l *tensorops.List, u Update, h *localParam, w tensorops.Tensor, state [2]tensorops.Tensor,
	g, low tensorops.Tensor, clear bool) {
	o, decay := h.own, 0.0
	if o.byMuon(h.param) {
		s.muon(l, u, h, w, state[0], g, low, clear)
		return
	}
	u.LR *= h.lrScale
	if h.param.Decay {
		decay = o.WeightDecay
	}
	if o.Name != SGD {
		l.AdamW(w, state[0], state[1], g, tensorops.AdamWOpts{LR: u.LR, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
			WeightDecay: decay, GradScale: u.GradScale, Step: u.Count, ClearGrad: clear, Copy: low})
		return
	}
	l.SGD(w, state[0], g, tensorops.SGDOpts{LR: u.LR, Momentum: o.Momentum, WeightDecay: decay, GradScale: u.GradScale, Copy: low})
	if clear {
		l.Fill(g, 0)
	}
}

// ClearGrads records zero gradients, for a skipped step.
func (s *Stage) ClearGrads(l *tensorops.List) {
	s.clearWhole(l)
	s.clearRows(l)
	s.clearLoads(l)
}

// clearWhole clears the whole gradients, one for each parameter.
func (s *Stage) clearWhole(l *tensorops.List) {
	for _, h := range s.local {
		if g := h.g[h.place()]; !h.param.Frozen && !s.closeBrief(l, h) && g.Valid() {
			l.Fill(g, 0)
		}
	}
}

// clearRows clears the row gradients.
func (s *Stage) clearRows(l *tensorops.List) {
	for _, h := range s.local {
		for _, rows := range h.rows {
			if rows != nil {
				rows.clear(l)
			}
		}
	}
}

// descends reports whether a gradient of the loss moves the parameter.
func (p *Param) descends() bool { return !p.Frozen && p.LoadRate == 0 }
