package stages

import "github.com/troupe-ml/troupe/tensorops"

// EMAPart is the part of the optimizer's state that has the moving average of a parameter's weights. It is float32.
const EMAPart = "ema"

// allocAverage allocates the moving average of a parameter, or of this rank's part of it.
func (s *Stage) allocAverage(l *tensorops.List, h *localParam) {
	if p := s.ofState(h.param); s.opts.Optimizer.EMA > 0 && p.Len() > 0 && p.LoadRate == 0 {
		h.ema = l.Alloc(tensorops.Float32, p.Shape...)
		l.Fill(h.ema, 0)
	}
}

// startAverages records that moving averages begin at the weights, for a run that starts.
func (s *Stage) startAverages(l *tensorops.List) {
	for _, h := range s.local {
		if !h.ema.Valid() {
			continue
		}
		w := h.w
		if from, to := s.ownPart(h.param); h.splitsWeight {
			w = s.ownWeight(h)
		} else if s.splits(h.param) {
			w = within(h.w, from, to)
		}
		l.Copy(h.ema, w)
	}
}

// average records the next moving average of a weight that was updated: EMA·average + (1−EMA)·w.
func (s *Stage) average(l *tensorops.List, h *localParam, w tensorops.Tensor) {
	if !h.ema.Valid() {
		return
	}
	decay := s.opts.Optimizer.EMA
	l.AddScaled(h.ema, h.ema, tensorops.Tensor{}, decay)
	l.AddScaled(h.ema, w, h.ema, 1-decay)
}
