package scheduler

import (
	"fmt"
	"slices"
)

// Generate makes the table of a spec. Weight gradients run in ascending microbatch
// order on every chunk, so that they add up in the same order under every schedule.
func Generate(s Spec) (*Table, error) {
	s, err := s.resolve()
	if err != nil {
		return nil, err
	}
	if s.Schedule == Auto {
		return s.auto()
	}
	k, _ := s.kind()
	t, err := s.table(k)
	if err == nil && !s.ForwardOnly && s.DeferWeights > 0 {
		t.deferWeights(s.DeferWeights)
	}
	return t, err
}

// table makes the table of a resolved spec.
func (s Spec) table(k kind) (*Table, error) {
	chunks, err := k.placement.Chunks(s.Ranks, s.Chunks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	t := &Table{Schedule: s.Schedule, Placement: k.placement, NumChunks: chunks, Microbatches: s.Microbatches, ForwardOnly: s.ForwardOnly}
	if t.Ranks, err = k.rows(s); err != nil {
		return nil, err
	}
	if s.ForwardOnly {
		for r, row := range t.Ranks {
			t.Ranks[r] = slices.DeleteFunc(row, func(a Action) bool { return a.Type != F })
		}
	}
	return t, nil
}

// byRank makes rows one by one.
func byRank(row func(s Spec, rank int) []Action) func(s Spec) ([][]Action, error) {
	return func(s Spec) ([][]Action, error) {
		rows := make([][]Action, s.Ranks)
		for rank := range rows {
			rows[rank] = row(s, rank)
		}
		return rows, nil
	}
}

// forwardsOfZBV makes rows, and forwards as zb-v has them, which fit any number of
// microbatches.
func forwardsOfZBV(rows func(s Spec) ([][]Action, error)) func(s Spec) ([][]Action, error) {
	return func(s Spec) ([][]Action, error) {
		if s.ForwardOnly {
			return byRank(Spec.zbv)(s)
		}
		return rows(s)
	}
}

// phases makes the rows of the schedules that warm up, run forwards and backwards in
// turn, and cool down.
func (s Spec) phases() ([][]Action, error) {
	visits := s.visits()
	return byRank(func(s Spec, rank int) []Action { return s.order(rank, visits) })(s)
}

// visits lists the virtual microbatches of a rank in the order of its forwards: a group of
// microbatches passes through the first chunk, then the same group through the
// next chunk, and after the last chunk comes the next group. It is the same for
// all ranks. With the chunks counted backwards it is also the order of the
// backwards.
func (s Spec) visits() []VirtualMicrobatch {
	group := s.MicrobatchGroupSize
	switch {
	case s.Schedule == BreadthFirst:
		group = s.Microbatches
	case !s.grouped():
		group = 1 // one microbatch after the other
	}
	list := make([]VirtualMicrobatch, 0, s.Microbatches*s.Chunks)
	for first := 0; first < s.Microbatches; first += group {
		beyond := min(first+group, s.Microbatches)
		for local := range s.Chunks {
			for m := first; m < beyond; m++ {
				list = append(list, VirtualMicrobatch{m, local})
			}
		}
	}
	return list
}

// order lays the visits of one rank out: first the warm-up, which fills the
// pipeline, then forwards and backwards in turn, then the backwards that are
// left. Where the backward is split, its weight gradient follows as many backwards
// later as the rank puts off, and what is left at the end.
func (s Spec) order(rank int, visits []VirtualMicrobatch) []Action {
	if s.ForwardOnly {
		row := make([]Action, 0, len(visits))
		for _, v := range visits {
			row = append(row, s.forward(v, rank))
		}
		return row
	}

	warmUp, turn := s.warmUp(rank), 1
	if s.Schedule == None {
		warmUp, turn = 0, s.Chunks // a microbatch goes all the way up and down
	}
	split, delay := s.putOff(rank)
	row := make([]Action, 0, 3*len(visits))
	up, down, weights := 0, 0, 0 // visits done
	backward := func() {
		if !split {
			row = append(row, s.backward(B, visits[down], rank))
			down++
			return
		}
		row = append(row, s.backward(I, visits[down], rank))
		down++
		if down > delay {
			row = append(row, s.backward(W, visits[weights], rank))
			weights++
		}
	}
	for ; up < warmUp; up++ {
		row = append(row, s.forward(visits[up], rank))
	}
	for up < len(visits) {
		for range turn {
			row = append(row, s.forward(visits[up], rank))
			up++
		}
		for range turn {
			backward()
		}
	}
	for down < len(visits) {
		backward()
	}
	for ; split && weights < len(visits); weights++ {
		row = append(row, s.backward(W, visits[weights], rank))
	}
	return row
}

func (s Spec) forward(v VirtualMicrobatch, rank int) Action {
	return Action{Chunk: int32(v.LocalChunk*s.Ranks + rank), Type: F, Microbatch: int32(v.Microbatch)}
}

func (s Spec) backward(t Type, v VirtualMicrobatch, rank int) Action {
	return Action{Chunk: int32((s.Chunks-1-v.LocalChunk)*s.Ranks + rank), Type: t, Microbatch: int32(v.Microbatch)}
}

// putOff says whether backwards are split, and how many of a rank's weight gradients
// are put off. The ranks near the loss have their first gradients early, and fill the
// time in which the others wait for theirs with forwards; the weight gradients that
// they owe then fill the time in which those still compute.
func (s Spec) putOff(rank int) (split bool, delay int) {
	switch s.Schedule {
	case ZBH1, ZB1P:
		return true, rank
	case ZBH2:
		return true, 2 * rank
	}
	return false, 0
}

// warmUp is how many chunk forwards a rank runs ahead of its turns of a forward and a
// backward. Where no backward comes between forwards, all of them are warm-up.
func (s Spec) warmUp(rank int) int {
	all := s.Microbatches * s.Chunks
	if s.ForwardOnly {
		return all
	}
	below := s.Ranks - 1 - rank // ranks between this one and the loss
	switch s.Schedule {
	case None:
		return s.Chunks - 1
	case OneFOneB, ZBH1:
		return min(below, all)
	case EagerOneFOneB, ZBH2:
		return min(2*below, all)
	case ZB1P: // a gradient is on its way sooner, with the I of each rank below alone
		return min(below+(s.Chunks-1)*s.MicrobatchGroupSize, all)
	case Interleaved:
		// Each rank below takes a forward and gives a backward before its turn
		// comes back, and all chunks but the last take a group first.
		return min(2*below+(s.Chunks-1)*s.MicrobatchGroupSize, all)
	}
	return all
}
