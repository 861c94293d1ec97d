package actors

import (
	"math"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// RouterReporter is a Compute with layers of experts.
type RouterReporter interface {
	// RouterStats records the end of a step's statistics of routers. The returned function returns them after the list has
	// completed.
	RouterStats(l *tensorops.List) func() []stages.RouterStats
}

// The metrics of a step of a model with experts, each the mean over the layers that have them.
const (
	auxLossMetric = "aux_loss"       // the balance loss, without its weight; as many as the experts of a token if loads are equal
	entropyMetric = "router_entropy" // of a token's scores, in nats; of sigmoids divided by their sum
	zLossMetric   = "router_z_loss"  // the z-loss, without its weight; only if it has one
	spreadMetric  = "expert_load_cv" // coefficient of variation of the experts' tokens in the step; 0: equal loads
	peakMetric    = "expert_load_max_ratio"
)

// routerMetrics adds the metrics of routers to those of a step. The ranks' reports are added in the order of the ranks.
func routerMetrics(metrics map[string]float64, byRank [][]stages.RouterStats) map[string]float64 {
	var layers []stages.RouterStats
	at := make(map[int]int) // by layer
	for _, reports := range byRank {
		for _, r := range reports {
			i, ok := at[r.Layer]
			if !ok {
				i = len(layers)
				at[r.Layer] = i
				layers = append(layers, stages.RouterStats{Layer: r.Layer, Counts: make([]float64, len(r.Counts))})
			}
			sum := &layers[i]
			sum.Rows, sum.AuxLoss, sum.Entropy = sum.Rows+r.Rows, sum.AuxLoss+r.AuxLoss, sum.Entropy+r.Entropy
			sum.ZLoss += r.ZLoss
			for e := range min(len(sum.Counts), len(r.Counts)) {
				sum.Counts[e] += r.Counts[e]
			}
		}
	}
	if len(layers) == 0 {
		return metrics
	}
	if metrics == nil {
		metrics = make(map[string]float64)
	}
	n := float64(len(layers))
	for _, l := range layers {
		spread, peak := loadOf(l.Counts)
		metrics[auxLossMetric] += l.AuxLoss / l.Rows / n
		metrics[entropyMetric] += l.Entropy / l.Rows / n
		if l.ZLoss > 0 {
			metrics[zLossMetric] += l.ZLoss / l.Rows / n
		}
		metrics[spreadMetric] += spread / n
		metrics[peakMetric] += peak / n
	}
	return metrics
}

// loadOf returns the coefficient of variation of loads, and the largest load by their mean.
func loadOf(counts []float64) (spread, peak float64) {
	var sum, squares, largest float64
	for _, c := range counts {
		sum, largest = sum+c, max(largest, c)
	}
	mean := sum / float64(len(counts))
	for _, c := range counts {
		squares += (c - mean) * (c - mean)
	}
	return math.Sqrt(squares/float64(len(counts))) / mean, largest / mean
}
