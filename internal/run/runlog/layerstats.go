package runlog

import (
	"math"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
)

// compile-time: a stage knows the norms of its weights.
var _ actors.WeightNormer = (*stages.Stage)(nil)

// LayerStats makes a line of stats.jsonl of norms by parameter.
type LayerStats struct {
	layers  []telemetry.LayerStats // without norms
	trained []bool                 // by layer: whether some of it is
	of      []int                  // by parameter: its layer
	memory  func() []int64         // by rank; nil: not known
}

// NewLayerStats is of a plan's layers; memory is of each rank, as RankMemory of a run.
func NewLayerStats(p *plan.Plan, memory func() []int64) *LayerStats {
	m := p.Model()
	s := &LayerStats{of: m.LayersOf(), memory: memory}
	at := p.StagesOfLayers()
	for i, name := range m.LayerNames() {
		s.layers = append(s.layers, telemetry.LayerStats{Name: name, Stage: at[i]})
	}
	s.trained = make([]bool, len(s.layers))
	for _, param := range m.Params {
		n := int64(1)
		for _, d := range param.Whole {
			n *= int64(d)
		}
		layer := s.of[param.Index]
		s.layers[layer].Params += n
		s.trained[layer] = s.trained[layer] || !param.Frozen
	}
	return s
}

// Line is that of a step.
func (s *LayerStats) Line(n actors.Norms) telemetry.Stats {
	weights, grads := make([]float64, len(s.layers)), make([]float64, len(s.layers)) // squared
	for param, layer := range s.of {
		weights[layer] += squared(n.Weights, param)
		grads[layer] += squared(n.Grads, param)
	}
	t := telemetry.Stats{Step: int(n.Step), MemBytes: s.memory(), Layers: slices.Clone(s.layers)}
	for i := range t.Layers {
		l := &t.Layers[i]
		if l.Params == 0 {
			continue
		}
		weight, grad := math.Sqrt(weights[i]), math.Sqrt(grads[i])
		if !math.IsNaN(weight) || len(n.Weights) > 0 {
			l.WeightNorm = &weight
		}
		if s.trained[i] {
			l.GradNorm = &grad
		}
	}
	return t
}

// squared is that of a parameter's norm. Behind the last one that was reported there is nothing
// but what is not trained.
func squared(norms []float64, param int) float64 {
	if param >= len(norms) {
		return 0
	}
	return norms[param] * norms[param]
}
