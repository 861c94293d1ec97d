package stages

import "math"

// Decays of the learning rate.
const (
	Cosine   = "cosine"
	Linear   = "linear"
	Constant = "constant"
)

// Rate is the learning rate's course: linear warm-up to LR, then a decay to
// MinLR at the last step.
type Rate struct {
	LR, MinLR float64
	Warmup    int64
	Steps     int64
	Decay     string // Cosine, Linear or Constant
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
	at := (done - float64(r.Warmup)) / math.Max(1, float64(r.Steps-r.Warmup-1)) // 1 at the last step
	f := 1 - at
	if r.Decay == Cosine {
		f = 0.5 * (1 + math.Cos(math.Pi*at))
	}
	return r.MinLR + f*(r.LR-r.MinLR)
}
