package stages

import "math"

// The decays of the learning rate.
const (
	Cosine   = "cosine"
	Linear   = "linear"
	Constant = "constant"
	WSD      = "wsd" // warm-up, stable, decay
)

// Rate is the schedule of the learning rate: linear warm-up to LR, then a decay to MinLR at the
// last step. With WSD it stays at LR and falls only in the last DecaySteps, by one minus the square
// root of their completed share. (Hägele et al. 2024; they find that a fifth of the steps is as
// good as a cosine over all.)
type Rate struct {
	LR, MinLR float64
	Warmup    int64
	Steps     int64
	Decay     string // Cosine, Linear, Constant or WSD
	// DecaySteps is the number of last steps in which the rate falls, with WSD.
	DecaySteps int64
}

// At returns the learning rate of a step, counted from 1.
func (r Rate) At(step int64) float64 {
	done := float64(step - 1)
	if step <= r.Warmup {
		return r.LR * (done + 1) / float64(r.Warmup+1)
	}
	if r.Decay == Constant {
		return r.LR
	}
	if step > r.Steps {
		return r.MinLR
	}
	begin := r.Warmup // steps before the decay
	if r.Decay == WSD {
		if begin = max(begin, r.Steps-r.DecaySteps); step <= begin {
			return r.LR
		}
	}
	at := (done - float64(begin)) / math.Max(1, float64(r.Steps-begin-1)) // 1 at the last step
	f := 1 - at
	switch r.Decay {
	case Cosine:
		f = 0.5 * (1 + math.Cos(math.Pi*at))
	case WSD:
		f = 1 - math.Sqrt((done-float64(begin)+1)/float64(r.Steps-begin))
	}
	return r.MinLR + float64(f*(r.LR-r.MinLR)) // not fused with the addition, as the compiler would on arm64
}
