package forecast

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// experts are a model's experts, for the search.
type experts struct {
	weights, trained float64 // of all experts
	layers           int     // that have experts
}

func expertsOf(m *stages.Model) (x experts) {
	c := m.Config
	if c.Experts.Count == 0 {
		return x
	}
	for _, w := range m.Params {
		if !w.Experts() {
			continue
		}
		if x.weights += float64(w.Len()); !w.Frozen {
			x.trained += float64(w.Len())
		}
	}
	x.layers = c.Layers - len(c.Experts.Dense) + c.MTPLayers
	return x
}

// expertSizes returns the sizes of expert groups to try in a grid, in ascending order: divisors of the number of experts that divide the
// ranks with the same layers, without those with which not even weights, gradients and optimizer state fit. fits is false if that is so
// for all of them.
func (s *search) expertSizes(g shape) (sizes []int, fits bool) {
	var all []int
	for n := 1; n <= g.sharers() && (n == 1 || s.sharesExperts()); n++ {
		if g.sharers()%n != 0 || s.model.CheckExperts(n) != nil {
			continue
		}
		all = append(all, n)
		if g.expert = n; s.mayFit(g) {
			sizes = append(sizes, n)
		}
	}
	if len(sizes) == 0 {
		return all, false
	}
	return sizes, true
}

// sharesExperts reports whether the search lets ranks share the experts of a configuration's model. Config and plan.checkExperts refuse
// some; on a GPU an exchange overlaps with nothing, which the forecast of pairs does not know.
func (s *search) sharesExperts() bool {
	return s.experts.layers > 0 && s.base.Device.Kind != device.CUDA && s.base.Optimizer.StateDType != config.StateInt8
}

// withExperts returns a way with at most two sizes of expert groups: the smallest, and of the larger ones the one that promises
// to be the fastest if it is faster than the smallest: a larger group exchanges more, but a rank updates fewer experts and
// sums their gradients over fewer ranks. If an option needs too much memory, recomputing tries larger groups. So the search has at
// most three candidates where it has one for a model without experts, with those of overlapped.
func (s *search) withExperts(w way, sizes []int, batch BatchCosts) (kept []candidate) {
	for _, n := range sizes {
		if n > 1 && !s.evenly(w) {
			continue
		}
		w.expert = n
		c := candidate{way: w, roughMS: s.rough(w, batch)}
		switch {
		case len(kept) == 0:
			kept = append(kept, c)
		case c.roughMS >= kept[len(kept)-1].roughMS:
		case len(kept) == 1:
			kept = append(kept, c)
		default:
			kept[1] = c
		}
	}
	return kept
}

// evenly reports whether all replicas have equally many microbatches, as ranks that share experts must.
func (s *search) evenly(w way) bool { return s.base.Batch.Sequences/w.microbatch%w.data == 0 }

// overlapped returns the candidate of a way with overlapped pairs that promises to be the fastest, with a schedule that has some, if
// exchanges of tokens take so long that hiding them makes a difference.
func (s *search) overlapped(w way, sizes []int, batch BatchCosts) []candidate {
	var slow []int // groups
	for _, n := range sizes {
		if w.expert = n; n > 1 && s.exchangesMS(w) > (equalTime-1)*s.computingMS(w, batch) {
			slow = append(slow, n)
		}
	}
	w.overlap = true
	switch {
	case w.chunks == 1 && w.stages == 1:
		w.schedule = scheduler.None
	case w.chunks == 1: // it warms up as eager-1f1b does, which has the same pairs
		w.schedule = scheduler.OneFOneB
	case w.chunks == 2:
		w.schedule = scheduler.DualPipeV
	default:
		return nil
	}
	all := s.withExperts(w, slow, batch)
	return all[max(0, len(all)-1):]
}

// layerExchanges is how often a layer with experts sends the tokens of a microbatch to their experts, or back: once each in a forward pass,
// and two times each in a backward, for the gradients of the input and of the weights.
const layerExchanges = 6

// exchangesMS estimates the time that a rank's exchanges of tokens take in a microbatch.
func (s *search) exchangesMS(w way) float64 {
	if w.expert == 1 {
		return 0
	}
	c := s.model.Config
	bytes := float64(w.microbatch*c.Context/w.context*c.Experts.PerToken*c.Hidden) * s.elementBytes()
	if w.whole { // each rank sends its own tokens
		bytes /= float64(w.tensor)
	}
	layers := float64(s.experts.layers) / float64(w.stages)
	return layerExchanges * layers * s.cluster.excess(w.expert) * s.amongMS(w.expertGroup(), bytes)
}

// sharer returns the i-th of the ranks from which the expert group of rank 0 is cut, in the default order of dimensions.
func (g shape) sharer(i int) int {
	if n := g.tensor * g.context; g.whole {
		return i%n + i/n*n*g.stages
	}
	return i%g.context*g.tensor + i/g.context*g.tensor*g.context*g.stages
}

// expertGroup returns the ranks of rank 0's expert group, and expertCopies those with the same experts.
func (g shape) expertGroup() (ranks []int) {
	for i := range g.expert {
		ranks = append(ranks, g.sharer(i))
	}
	return ranks
}

func (g shape) expertCopies() (ranks []int) {
	for i := 0; i < g.sharers(); i += g.expert {
		ranks = append(ranks, g.sharer(i))
	}
	return ranks
}

// excess is the load of the busiest rank of an expert group of n ranks, divided by the mean.
func (c Devices) excess(n int) float64 { return min(max(1, c.ExpertImbalance), float64(max(1, n))) }

// expertRows returns the share of the rows for which a rank of a plan has room that its experts compute if all have equal loads.
func expertRows(b *plan.Plan) float64 {
	x, n := b.Model().Config.Experts, b.Grid().Size(grid.Expert)
	if n == 1 {
		return 1
	}
	// A token chooses no expert twice: see stages.expertFFN.heldRows.
	return float64(x.PerToken) / float64(min(x.PerToken, x.Count/n)*n)
}

// expertWork returns the work of a product of experts and the number of ranks that share them; 0: the operation is no such product. rows
// is the share of its rows that it computes.
func expertWork(o *tensorops.Op, rows float64) (work float64, ranks int) {
	switch o.Kind {
	case tensorops.KindGroupedMatMul:
		if ranks = max(1, o.GroupedMatMul().Sources); ranks == 1 {
			rows = 1
		}
	case tensorops.KindGroupedWeightGrad: // for the tokens of each rank by itself
		if ranks = max(1, o.GroupedWeightGrad().Sources); ranks == 1 {
			rows = 1
		}
		rows /= float64(ranks)
	default:
		return 0, 0
	}
	return flopsOf(o) * rows, ranks
}
