package stages

import "math"

// Decays of the learning rate.
const (
	Cosine   = "cosine"
	Linear   = "linear"
	Constant = "constant"
	WSD      = "wsd" // warm-up, stable, decay
)

// Rate is the learning rate's course: linear warm-up to LR, then a decay to
// MinLR at the last step. With WSD it stays at LR and falls in the last DecaySteps alone, by one
// less the square root of the part that is done (Hägele et al. 2024, where a fifth of the
// steps does as well as a cosine over all).
type Rate struct {
	LR, MinLR float64
	Warmup    int64
	Steps     int64
	Decay     string // Cosine, Linear, Constant or WSD
	// DecaySteps are those at the end in which the rate falls, with WSD.
	DecaySteps int64
}

// At is the learning rate of a step, counted from 1.
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
	return r.MinLR + float64(f*(r.LR-r.MinLR)) // not fused with the addition, as arm64 would
}
