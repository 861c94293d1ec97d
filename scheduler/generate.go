package scheduler

import (
	"fmt"
	"slices"
)

// Generate makes the table of a spec. On every chunk the weight gradients run in ascending
// microbatch order, so every schedule adds them up in the same order. It returns ErrSpec for a spec
// that contradicts itself or the schedule.
func Generate(s Spec) (*Table, error) {
	s, err := s.resolve()
	if err != nil {
		return nil, err
	}
	if s.Schedule == Auto && s.Pairs && !s.ForwardOnly {
		return nil, s.noPairs()
	}
	if s.Schedule == Auto {
		return s.auto()
	}
	k, _ := s.kind()
	t, err := s.table(k)
	if err == nil && !s.ForwardOnly && s.DeferWeights > 0 {
		t.deferWeights(s.DeferWeights)
	}
	if err == nil && !s.ForwardOnly && s.Pairs {
		err = s.withPairs(t)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
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

// byRank makes rows one rank at a time.
func byRank(row func(s Spec, rank int) []Action) func(s Spec) ([][]Action, error) {
	return func(s Spec) ([][]Action, error) {
		rows := make([][]Action, s.Ranks)
		for rank := range rows {
			rows[rank] = row(s, rank)
		}
		return rows, nil
	}
}

// forwardsOfZBV makes rows for training, and forward-only tables as zb-v has them, which fit any
// number of microbatches.
func forwardsOfZBV(rows func(s Spec) ([][]Action, error)) func(s Spec) ([][]Action, error) {
	return func(s Spec) ([][]Action, error) {
		if s.ForwardOnly {
			return byRank(Spec.zbv)(s)
		}
		return rows(s)
	}
}

// phases makes the rows of the schedules that have a warm-up, a steady state of alternating
// forwards and backwards, and a cool-down.
func (s Spec) phases() ([][]Action, error) {
	visits := s.visits()
	return byRank(func(s Spec, rank int) []Action { return s.order(rank, visits) })(s)
}

// visits lists a rank's virtual microbatches in the order of its forwards. A group of microbatches
// passes through the first chunk, then the same group through the next chunk; after the last chunk
// comes the next group. The list is the same for all ranks. With the chunks counted from the last
// one it is also the order of the backwards.
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

// order makes the row of one rank: the warm-up, which fills the pipeline; then forwards and
// backwards in turn; then the remaining backwards. If the backward is split, each weight gradient
// follows after the rank's delay, counted in backwards, and the remaining ones come at the end.
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
	up, down, weights := 0, 0, 0 // visits completed
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

// putOff reports whether backwards are split, and by how many backwards a rank delays its weight
// gradients. The ranks near the loss have their first gradients early. They run forwards while the
// other ranks wait for theirs, and later run the delayed weight gradients while the others still
// compute.
func (s Spec) putOff(rank int) (split bool, delay int) {
	switch s.Schedule {
	case ZBH1, ZB1P:
		return true, rank
	case ZBH2:
		return true, 2 * rank
	}
	return false, 0
}

// warmUp returns how many forwards of chunks a rank runs before it alternates forwards and
// backwards. If no backward comes between forwards, all forwards are warm-up.
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
		if s.Pairs { // a forward goes through a rank in the time of a pair, and so does a backward
			return min(2*below, all)
		}
		return min(below, all)
	case EagerOneFOneB, ZBH2:
		return min(2*below, all)
	case ZB1P: // a gradient arrives sooner, since each rank below runs only its I first
		return min(below+(s.Chunks-1)*s.MicrobatchGroupSize, all)
	case Interleaved:
		// Each rank below takes a forward and returns a backward before this rank's turn comes, and
		// all chunks except the last take a group first.
		return min(2*below+(s.Chunks-1)*s.MicrobatchGroupSize, all)
	}
	return all
}
