package actors

import (
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// WeightNormer is a Compute that knows the norms of its weights.
type WeightNormer interface {
	// WeightNorms records the squared norm of what the rank has of every weight that it answers for. What it
	// returns gives them when the list has completed.
	WeightNorms(l *tensorops.List) func() []stages.Norm
}

// Norms are those of a step, by parameter, in the model's order: of the weights that it has computed
// with, and of their gradients before clipping. NaN: not known.
type Norms struct {
	Step           int64
	Weights, Grads []float64
}

// newNorms adds up what ranks have reported, each in its slot. scale is the factor of gradients.
func newNorms(step int64, slots int, grads, weights []float64, scale float64) *Norms {
	n := &Norms{Step: step}
	for param := range max(len(grads), len(weights)) / slots {
		n.Grads = append(n.Grads, rooted(grads, param, slots)*scale)
		n.Weights = append(n.Weights, rooted(weights, param, slots))
	}
	return n
}

// rooted is the norm of a parameter. Those of a step that nobody reports are 0: a weight that is
// nothing but zeros, or one that has no gradient.
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
