package actors

import (
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// WeightNormer is a Compute that can compute the norms of its weights.
type WeightNormer interface {
	// WeightNorms records the squared norm of the rank's part of every weight that it reports. The
	// returned function returns the norms after the list has completed.
	WeightNorms(l *tensorops.List) func() []stages.Norm
}

// Norms holds the norms of a step by parameter, in the model's order: of the weights used in the
// step, and of their gradients before clipping. NaN: unknown.
type Norms struct {
	Step           int64
	Weights, Grads []float64
}

// newNorms adds up the reports of ranks, each in its slot. scale is the factor of gradients.
func newNorms(step int64, slots int, grads, weights []float64, scale float64) *Norms {
	n := &Norms{Step: step}
	for param := range max(len(grads), len(weights)) / slots {
		n.Grads = append(n.Grads, rooted(grads, param, slots)*scale)
		n.Weights = append(n.Weights, rooted(weights, param, slots))
	}
	return n
}

// rooted returns the norm of a parameter. Norms that no rank reports are 0: the weight is all
// zeros, or has no gradient.
func rooted(squared []float64, param, slots int) float64 {
	if (param+1)*slots > len(squared) {
		return math.NaN()
	}
	var sum float64
	for _, s := range squared[param*slots : (param+1)*slots] {
		sum += s
	}
	return math.Sqrt(sum)
}
