package forecast

import (
	"cmp"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// mostPlayed is the number of candidates that a round of the search simulates, the most promising ones first.
const mostPlayed = 256

// candidate is an option before its simulation.
type candidate struct {
	way
	roughMS float64 // what a step may take, by arithmetic
}

// candidates lists the options to try, the most promising ones first. It leaves out grids whose weights, gradients and
// optimizer state exceed a device's memory, unless all do. None recomputes: that only adds time.
func (s *search) candidates() []candidate {
	var all, small []candidate
	for _, g := range s.shapes() {
		sizes, fits := s.expertSizes(g)
		for _, batch := range s.costs.Batches {
			n := s.base.Batch.Sequences / batch.Microbatch
			if s.base.Batch.Sequences%batch.Microbatch != 0 || g.data > n {
				continue
			}
			for chunks := 1; chunks <= mostChunks && (chunks == 1 || g.stages > 1 && g.stages*chunks <= s.base.Model.Layers+2); chunks++ {
				w := way{shape: g, chunks: chunks, microbatch: batch.Microbatch, recompute: "none"}
				for _, c := range s.scheduled(w, sizes, batch) {
					if all = append(all, c); fits {
						small = append(small, c)
					}
				}
			}
		}
	}
	if s.someMayFit = len(small) > 0; !s.someMayFit {
		small = all
	}
	slices.SortStableFunc(small, func(a, b candidate) int { return cmp.Compare(a.roughMS, b.roughMS) })
	return small
}

// scheduled returns the candidates of a way with all schedules to try, of which each has one or two of the sizes of expert groups.
func (s *search) scheduled(w way, sizes []int, batch BatchCosts) (all []candidate) {
	n := s.base.Batch.Sequences / w.microbatch
	for _, name := range s.schedules(w.shape, w.chunks, n) {
		w.schedule = name
		all = append(all, s.withExperts(w, sizes, batch)...)
	}
	return append(all, s.overlapped(w, sizes, batch)...)
}

// rough estimates the time of a step by arithmetic, to order candidates: the layers divided evenly, the schedule's bubble, and
// transfers as far as they take longer than computing.
func (s *search) rough(w way, batch BatchCosts) float64 {
	model := s.model.Config
	computing := s.computingMS(w, batch)
	microbatches := math.Ceil(float64(s.base.Batch.Sequences/w.microbatch) / float64(w.data))
	bubble := float64(w.stages-1) / float64(w.chunks)
	// split backward passes fill two thirds of it
	if w.schedule == scheduler.ZBV || w.schedule == scheduler.ZBH1 || w.schedule == scheduler.ZB1P ||
		w.overlap && w.schedule == scheduler.DualPipeV {
		bubble /= 3
	}
	layers := float64(model.Layers) / float64(w.stages)
	experts := s.experts.weights / float64(w.tensor*w.stages)
	weights := float64(s.model.Parameters())/float64(w.tensor*w.stages) - experts // those of all else
	if w.whole {
		experts *= float64(w.tensor)
	}
	tensor := 0.0
	if w.tensor > 1 { // two sums there and two back
		bytes := 2 * float64(w.microbatch*model.Context*model.Hidden/w.context) * s.elementBytes()
		tensor = 4 * layers * s.groupMS(1, w.tensor, bytes)
	}
	copies := w.context * w.data
	update := weights + experts/float64(w.expert)
	if w.zero > 0 {
		update = weights/float64(copies) + experts/float64(w.sharers())
	}
	var sums float64
	if w.expert == 1 && !w.whole {
		sums = s.groupMS(w.tensor, copies, 2*4*(weights+experts))
	} else {
		sums = s.groupMS(w.tensor, copies, 2*4*weights) + s.amongMS(w.expertCopies(), 2*4*experts/float64(w.expert))
	}
	sums = max(0, sums-computing)
	pass, exchanges := computing+tensor, s.exchangesMS(w)
	if w.overlap {
		pass = max(pass, exchanges)
	} else {
		pass += exchanges
	}
	return (microbatches+bubble)*pass + update*s.costs.UpdateNS/1e6 + sums
}

// computingMS is what a rank computes for a microbatch if the layers are divided evenly.
func (s *search) computingMS(w way, batch BatchCosts) (ms float64) {
	for _, symbol := range s.model.Symbols() {
		ms += batch.of(scheduler.Symbol(symbol), scheduler.F) + batch.of(scheduler.Symbol(symbol), scheduler.B)
	}
	return ms / float64(w.tensor*w.context*w.stages)
}

// elementBytes is the size of an element of an activation that is sent.
func (s *search) elementBytes() float64 {
	if s.base.Device.DType == "bfloat16" {
		return 2
	}
	return 4
}

// groupMS is the time that each rank of a group needs to send its parts of some bytes to
// all others, given the distance of its ranks.
func (s *search) groupMS(stride, size int, bytes float64) float64 {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i * stride
	}
	return s.amongMS(ranks, bytes)
}

// amongMS is the time that each of some ranks needs to send its parts of some bytes to all others.
func (s *search) amongMS(ranks []int, bytes float64) float64 {
	size := len(ranks)
	if size <= 1 || s.cluster.Devices <= 1 {
		return 0
	}
	l := s.cluster.link()
	if s.cluster.Nodes.joined() {
		l = s.cluster.Nodes.among(ranks, l)
	}
	return l.ms(bytes * float64(size-1) / float64(size))
}

// mayFit reports whether weights, gradients and optimizer state, spread evenly and shared by replicas, fit into a device's
// memory. An expert group divides the weights and the state of experts, but not their gradients: see stages.ExpertParallel.
func (s *search) mayFit(g shape) bool {
	if s.cluster.Devices <= 1 || s.cluster.MemoryBytes <= 0 {
		return true
	}
	parts := float64(g.tensor * g.stages)
	weights, trained, state := float64(s.model.Parameters())/parts, float64(s.trained)/parts, float64(s.state)/parts
	copies, sharers := 1.0, 1.0 // that share what they all have
	if g.zero > 0 {             // by mostZero all of these
		copies, sharers = float64(g.context*g.data), float64(g.sharers())
	}
	if g.expert == 1 && !g.whole {
		return (4*weights+4*trained+state)/copies <= float64(s.cluster.MemoryBytes)
	}
	x, xt := s.experts.weights/parts, s.experts.trained/parts
	ofExperts, groups := state*xt/max(1, trained), float64(g.expert)
	rest := (4*(weights-x) + 4*(trained-xt) + state - ofExperts) / copies
	own := ((4*x+ofExperts)/groups + 4*xt) / max(1, sharers/groups)
	if g.whole {
		own *= float64(g.tensor)
	}
	return rest+own <= float64(s.cluster.MemoryBytes)
}
