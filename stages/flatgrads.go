package stages

import (
	"cmp"
	"iter"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// flatGrads lays out the gradients of a data-parallel stage in one piece of memory, in the order in
// which they are completed. So ranges of them are added over the replicas while others are still
// computed. Gradients that are complete only at the end of the step come last.
type flatGrads struct {
	grads   tensorops.Tensor // shape: flatShape
	n       int              // number of elements that hold gradients
	runs    []gradRun
	late    []*localParam // parameters of no run
	begun   int           // number of runs whose sum is recorded
	summing []*localParam // parameters whose whole gradients are freed when their sum is complete
}

// gradRun is a range of elements [from, to) that one collective adds before the end of the step,
// after its layers have processed the step's last microbatch. With ZeRO each parameter has its own
// collective.
type gradRun struct {
	from, to int
	params   []*localParam
	after    []layerAt
}

// layerAt is the position of a layer on the rank.
type layerAt struct {
	c *chunk
	i int
}

// runLen is the smallest number of elements of a run, except for the last run of a chunk. At this
// size the fixed cost of a collective is small.
const runLen = 64 << 10

// layFlat allocates the whole gradients of the trained parameters.
func (s *Stage) layFlat(l *tensorops.List) {
	f, n, at := &s.flat, 0, make([]int, len(s.model.Params))
	lay := func(h *localParam) {
		at[h.param.Index] = n
		n += h.param.Len()
	}
	early := make([]bool, len(s.model.Params))
	s.layRuns(func(h *localParam) {
		early[h.param.Index] = true
		if !s.splitGrad(l, h) {
			lay(h)
		}
	})
	for _, h := range s.local {
		if !h.param.Frozen && !early[h.param.Index] && !s.divided(h.param) {
			f.late = append(f.late, h)
			lay(h)
		}
	}
	if f.n = n; n > 0 {
		f.grads = l.Alloc(tensorops.Float32, flatShape(n)...)
		l.Fill(f.grads, 0)
	}
	for _, h := range s.local {
		if from := at[h.param.Index]; !h.param.Frozen && !h.splitsGrad && !s.divided(h.param) {
			h.g[h.place()] = f.grads.Part(from, h.param.Shape...)
		}
	}
	if s.opts.Data.splits() {
		s.layParts(l, &s.parts, false)
		s.layParts(l, &s.expertParts, true)
	}
}

// flatCols is the last dimension of flat gradients that exceed the largest dimension.
const flatCols = 1 << 20

// flatShape returns a shape of at least n elements; n may exceed tensorops.MaxDim.
func flatShape(n int) []int {
	if n <= tensorops.MaxDim {
		return []int{n}
	}
	return []int{(n + flatCols - 1) / flatCols, flatCols}
}

// mostPiece is the largest number of elements that one collective adds.
const mostPiece = 1 << 30

// pieces yields one-dimensional views of the elements [from, to).
func (f *flatGrads) pieces(from, to int) iter.Seq[tensorops.Tensor] {
	return func(yield func(tensorops.Tensor) bool) {
		for ; from < to; from += mostPiece {
			if !yield(f.grads.Part(from, min(mostPiece, to-from))) {
				return
			}
		}
	}
}

// layRuns lays out each parameter whose gradient only layers complete, in the order of a backward,
// and notes the runs as if they were contiguous.
func (s *Stage) layRuns(lay func(*localParam)) {
	end := 0
	chunks := slices.Clone(s.order)
	slices.SortFunc(chunks, func(a, b *chunk) int { return cmp.Compare(b.number, a.number) })
	users := make([][]layerAt, len(s.model.Params)) // by parameter, in the order of a backward
	for _, c := range chunks {
		c.weightsDone = make([]int, len(c.layers))
		for i := len(c.layers) - 1; i >= 0; i-- {
			for _, u := range c.layers[i].uses() {
				users[u.param.Index] = append(users[u.param.Index], layerAt{c, i})
			}
		}
	}
	f := &s.flat
	for _, c := range chunks {
		run := gradRun{from: end, to: end}
		for i := len(c.layers) - 1; i >= 0; i-- {
			for _, h := range s.local {
				of := users[h.param.Index]
				if len(of) == 0 || of[len(of)-1] != (layerAt{c, i}) || !s.completeEarly(h, of) {
					continue
				}
				lay(h)
				end += h.param.Len()
				run.to, run.params, run.after = end, append(run.params, h), append(run.after, of...)
			}
			if run.to-run.from >= runLen || i == 0 && run.to > run.from {
				f.runs = append(f.runs, run)
				run = gradRun{from: end, to: end}
			}
		}
	}
}

// completeEarly reports whether a gradient is complete after these layers: neither another rank nor
// a rowGrad adds to it later.
func (s *Stage) completeEarly(h *localParam, users []layerAt) bool {
	places := 0
	for _, here := range h.here {
		if here {
			places++
		}
	}
	if s.divided(h.param) && !s.sharesGrad(h.param) {
		return false // sumExperts adds it at the end of the step
	}
	return len(users) > 0 && places == 1 && !h.shared && !h.param.Frozen && !s.summed(h.param) &&
		!slices.ContainsFunc(users, func(u layerAt) bool { return !u.c.back[u.i] || frozenLayer(u.c.layers[u.i]) })
}

// replicaSums adds the sums of gradients over the replicas to the step's last passes.
type replicaSums struct {
	noHook
	stage *Stage
}

func (r replicaSums) afterWeightGrad(p *pass, i int) { r.stage.layerDone(p.List, p.chunk, i, p.mb.Of) }

// layerDone counts a microbatch whose weight gradients a layer has recorded. After the step's last
// microbatch it starts the sums over the replicas that are now complete, in the order of the runs,
// which is the same on every replica.
func (s *Stage) layerDone(l *tensorops.List, c *chunk, i, microbatches int) {
	f := &s.flat
	if microbatches == 0 || len(f.runs) == 0 {
		return
	}
	c.weightsDone[i]++
	if c.weightsDone[i] < microbatches {
		return
	}
	for f.begun < len(f.runs) {
		run := f.runs[f.begun]
		if slices.ContainsFunc(run.after, func(at layerAt) bool { return at.c.weightsDone[at.i] < microbatches }) {
			return
		}
		if s.opts.Data.splits() {
			s.closeGrads(l) // of the previous run
			s.reduceOwn(l, run.params)
		} else {
			for t := range f.pieces(run.from, run.to) {
				s.beginCollective(l, tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: t, Src: t, How: tensorops.Sum})
			}
		}
		f.begun++
	}
}

// limitBegun limits the collectives in progress beside a list; a group limits how many it tracks.
const limitBegun = 256

// beginCollective records the start of a collective: of the replicas, if it names no other group. It returns the number for AwaitOne.
func (s *Stage) beginCollective(l *tensorops.List, a tensorops.CollectiveArgs) (number int) {
	if l.Begun() >= limitBegun {
		l.Await()
	}
	if a.Group == nil {
		a.Group = s.opts.Data.Group
	}
	number = l.Begin(a)
	if s.opts.NoOverlap {
		l.Await()
	}
	return number
}

// addReplicas records the sum of all gradients over the replicas, except those that layerDone has
// started. If each rank updates its own part, it sums only that part.
func (s *Stage) addReplicas(l *tensorops.List) {
	f := &s.flat
	switch {
	case s.opts.Data.splits():
		for _, run := range f.runs[f.begun:] {
			s.reduceOwn(l, run.params)
		}
		s.reduceOwn(l, f.late)
		s.reduceParts(l)
		s.reduceLoads(l)
		l.Await()
		s.closeGrads(l)
	case f.grads.Valid():
		from := 0
		if f.begun > 0 {
			from = f.runs[f.begun-1].to
		}
		for t := range f.pieces(from, f.n) {
			l.AllReduce(t, tensorops.Sum, s.opts.Data.Group)
		}
	}
	s.clearDone()
}

// clearDone resets the count of microbatches that the layers have processed.
func (s *Stage) clearDone() {
	s.flat.begun = 0
	for _, c := range s.order {
		clear(c.weightsDone)
	}
}
