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
		fits := s.mayFit(g)
		for _, batch := range s.costs.Batches {
			n := s.base.Batch.Sequences / batch.Microbatch
			if s.base.Batch.Sequences%batch.Microbatch != 0 || g.data > n {
				continue
			}
			for chunks := 1; chunks <= mostChunks && (chunks == 1 || g.stages > 1 && g.stages*chunks <= s.base.Model.Layers+2); chunks++ {
				for _, name := range s.schedules(g, chunks, n) {
					c := candidate{way: way{shape: g, chunks: chunks, schedule: name, microbatch: batch.Microbatch, recompute: "none"}}
					c.roughMS = s.rough(c.way, batch)
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

// rough estimates the time of a step by arithmetic, to order candidates: the layers divided evenly, the schedule's bubble, and
// transfers as far as they take longer than computing.
func (s *search) rough(w way, batch BatchCosts) float64 {
	model := s.model.Config
	computing := 0.0
	for _, symbol := range s.model.Symbols() {
		computing += batch.of(scheduler.Symbol(symbol), scheduler.F) + batch.of(scheduler.Symbol(symbol), scheduler.B)
	}
	computing /= float64(w.tensor * w.context * w.stages) // of a microbatch, on a rank
	microbatches := math.Ceil(float64(s.base.Batch.Sequences/w.microbatch) / float64(w.data))
	bubble := float64(w.stages-1) / float64(w.chunks)
	// split backward passes fill two thirds of it
	if w.schedule == scheduler.ZBV || w.schedule == scheduler.ZBH1 || w.schedule == scheduler.ZB1P {
		bubble /= 3
	}
	layers := float64(model.Layers) / float64(w.stages)
	weights := float64(s.model.Parameters()) / float64(w.tensor*w.stages)
	tensor := 0.0
	if w.tensor > 1 { // two sums there and two back
		bytes := 2 * float64(w.microbatch*model.Context*model.Hidden/w.context) * s.elementBytes()
		tensor = 4 * layers * s.groupMS(1, w.tensor, bytes)
	}
	update := weights * s.costs.UpdateNS / 1e6
	copies := w.context * w.data
	if w.zero > 0 {
		update /= float64(copies)
	}
	sums := max(0, s.groupMS(w.tensor, copies, 2*4*weights)-computing)
	return (microbatches+bubble)*(computing+tensor) + update + sums
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
	if size <= 1 || s.cluster.Devices <= 1 {
		return 0
	}
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i * stride
	}
	l := s.cluster.link()
	if s.cluster.Nodes.joined() {
		l = s.cluster.Nodes.among(ranks, l)
	}
	return l.ms(bytes * float64(size-1) / float64(size))
}

// mayFit reports whether weights, gradients and optimizer state, spread evenly and shared by replicas, fit into a device's
// memory.
func (s *search) mayFit(g shape) bool {
	if s.cluster.Devices <= 1 || s.cluster.MemoryBytes <= 0 {
		return true
	}
	each := float64(s.model.Parameters()) / float64(g.tensor*g.stages)
	trained := float64(s.trained) / float64(g.tensor*g.stages)
	bytes := 4*each + 4*trained + float64(s.state)/float64(g.tensor*g.stages)
	if g.zero > 0 { // by mostZero all of these
		bytes /= float64(g.context * g.data)
	}
	return bytes <= float64(s.cluster.MemoryBytes)
}
