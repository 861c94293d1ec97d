package stages

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/points"
)

// The decays of the learning rate.
const (
	Cosine   = "cosine"
	Linear   = "linear"
	Constant = "constant"
	WSD      = "wsd" // warm-up, stable, decay
	// CosineRestarts falls as Cosine in each cycle of DecaySteps, and begins the next cycle at LR. (SGDR, Loshchilov and Hutter
	// 2017, equation 5, with cycles of one length.)
	CosineRestarts = "cosine_restarts"
	// InverseSqrt falls with the square root of the steps: after the warm-up, step n has LR·√(T/(T+n)), where T is DecaySteps. With T
	// equal to the warm-up this is the schedule of Vaswani et al. 2017, equation 3.
	InverseSqrt = "inverse_sqrt"
	// Points has lines between the points of a table.
	Points = "points"
)

// Rate is the schedule of the learning rate: linear warm-up to LR, then a decay to MinLR at the
// last step. With WSD it stays at LR and falls only in the last DecaySteps, by one minus the square
// root of their completed share. (Hägele et al. 2024; they find that a fifth of the steps is as
// good as a cosine over all.) Constant, CosineRestarts, InverseSqrt and Points don't depend on Steps.
type Rate struct {
	LR, MinLR float64
	Warmup    int64
	Steps     int64
	Decay     string // one of the constants above
	// DecaySteps is the number of last steps in which the rate falls, with WSD; of the steps of a cycle, with CosineRestarts; and the
	// T of InverseSqrt. The last two take 1 for less than 1.
	DecaySteps int64
	// Points are steps in ascending order with their rates. If their largest rate is not LR, all are multiplied by the quotient.
	Points [][2]float64
}

// At returns the learning rate of a step, counted from 1.
func (r Rate) At(step int64) float64 {
	done := float64(step - 1)
	if step <= r.Warmup {
		return r.LR * (done + 1) / float64(r.Warmup+1)
	}
	if r.Decay == Points && len(r.Points) > 0 {
		return points.At(r.Points, float64(step)) * (r.LR / points.Peak(r.Points))
	}
	switch n, t := done-float64(r.Warmup), float64(max(1, r.DecaySteps)); r.Decay {
	case Constant:
		return r.LR
	case CosineRestarts:
		return r.between(0.5 * (1 + math.Cos(math.Pi*(math.Mod(n, t)/t))))
	case InverseSqrt:
		return max(r.MinLR, r.LR*math.Sqrt(t/(t+n)))
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
	return r.between(f)
}

// between returns the rate at a share f of the way from MinLR to LR.
func (r Rate) between(f float64) float64 {
	return r.MinLR + float64(f*(r.LR-r.MinLR)) // not fused with the addition, as the compiler would on arm64
}
