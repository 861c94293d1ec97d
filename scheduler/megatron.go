package scheduler

import (
	"fmt"
	"slices"
	"strings"
)

// Megatron-Core describes a rank's part of a schedule by four functions of megatron/core/pipeline_parallel/schedules.py, for
// CUDA graphs and for programs that follow a schedule on their own. This file has what they return, for the tables of this
// package: get_schedule_table is Spec.VirtualMicrobatches, get_pp_rank_microbatches is Spec.RankMicrobatches,
// convert_schedule_table_to_order is MegatronOrder, of any table Table.MegatronOrder, and get_tensor_shapes is EdgeSizes.Shape, and
// EdgeSizes.Transfers by rank.

// VirtualMicrobatch is the forward of one microbatch through one of a rank's chunks. Megatron-Core's schedule table has a column
// for each, in the order in which every rank runs them.
type VirtualMicrobatch struct {
	Microbatch int // from 0
	LocalChunk int // among the chunks of the rank, from 0
}

// VirtualMicrobatches is Megatron-Core's schedule table (get_schedule_table): Microbatches × Chunks forwards in the order of every
// rank. Backwards have the same order, with the chunks counted from the last one. It is ErrSpec for schedules whose ranks don't
// share one order: those in a V or a U, auto, and a program's own.
func (s Spec) VirtualMicrobatches() ([]VirtualMicrobatch, error) {
	s, err := s.resolvePhases()
	if err != nil {
		return nil, err
	}
	return s.visits(), nil
}

// RankMicrobatches counts the virtual microbatches of a rank. It runs the forwards of WarmUp of them first, then a forward and a
// backward in turn for each of those Remaining, then the backwards that are left.
type RankMicrobatches struct {
	Total     int // microbatches × chunks of the rank
	WarmUp    int
	Remaining int // Total − WarmUp
}

// RankMicrobatches counts the virtual microbatches of a rank, as Megatron-Core's get_pp_rank_microbatches does. (Of training without a
// pipeline, schedule none, that has a warm-up of 1, and this of 0: each forward is followed by its backward.) It is ErrSpec for the
// schedules for which VirtualMicrobatches is.
func (s Spec) RankMicrobatches(rank int) (RankMicrobatches, error) {
	s, err := s.resolvePhases()
	if err != nil {
		return RankMicrobatches{}, err
	}
	if rank < 0 || rank >= s.Ranks {
		return RankMicrobatches{}, fmt.Errorf("%w: there is no rank %d; the ranks are 0 to %d", ErrSpec, rank, s.Ranks-1)
	}
	total, warmUp := s.Microbatches*s.Chunks, s.warmUp(rank)
	if s.Schedule == None && !s.ForwardOnly {
		if s.Chunks > 1 {
			return RankMicrobatches{},
				fmt.Errorf("%w: schedule none runs a microbatch forward through all of %d chunks, and then back: no forward and backward take turns; use 1 chunk", ErrSpec, s.Chunks)
		}
		warmUp = 0
	}
	return RankMicrobatches{total, warmUp, total - warmUp}, nil
}

// resolvePhases resolves the spec of a schedule whose ranks warm up, run forwards and backwards in turn, and cool down.
func (s Spec) resolvePhases() (Spec, error) {
	s, err := s.resolve()
	if err != nil {
		return s, err
	}
	var phases []string
	for _, k := range builtIn {
		if k.placement == Loop && k.rows != nil {
			phases = append(phases, k.name)
		}
	}
	if !slices.Contains(phases, s.Schedule) {
		return s, fmt.Errorf("%w: ranks of schedule %s don't run all forwards in one order, with a warm-up; those of %s do", ErrSpec, s.Schedule,
			strings.Join(phases, ", "))
	}
	return s, nil
}

// MegatronOrder is Megatron-Core's convert_schedule_table_to_order: the order of a rank's passes, of its forwards by the table and of its
// backwards, after a warm-up of so many forwards. A forward of the rank's chunk c, from 0, is c+1, a backward −(c+1).
func MegatronOrder(table []VirtualMicrobatch, chunks, warmUp int) ([]int, error) {
	if chunks < 1 || warmUp < 0 || warmUp > len(table) {
		return nil, fmt.Errorf("%w: a warm-up of %d of %d virtual microbatches, with %d chunks on each rank: want 0 to %d, and at least 1 chunk",
			ErrSpec, warmUp, len(table), chunks, len(table))
	}
	order := make([]int, 0, 2*len(table))
	for i := range len(table) + warmUp {
		if i < len(table) {
			v := table[i]
			if v.LocalChunk < 0 || v.LocalChunk >= chunks {
				return nil, fmt.Errorf("%w: virtual microbatch %d is of chunk %d; the chunks of a rank are 0 to %d", ErrSpec, i, v.LocalChunk, chunks-1)
			}
			order = append(order, v.LocalChunk+1)
		}
		if i >= warmUp { // backwards count their chunks from the last one
			order = append(order, table[i-warmUp].LocalChunk-chunks)
		}
	}
	return order, nil
}

// MegatronOrder is the order of a rank's passes as Megatron-Core writes it: c+1 for a forward of the rank's chunk c, from 0, and −(c+1) for
// a backward. It is ErrNotation where the order can't say what the rank does: where input and weight gradients are apart, or a
// forward and a backward run as one.
func (t *Table) MegatronOrder(rank int) ([]int, error) {
	if rank < 0 || rank >= len(t.Ranks) {
		return nil, fmt.Errorf("%w: there is no rank %d; the ranks are 0 to %d", ErrRank, rank, len(t.Ranks)-1)
	}
	order := make([]int, 0, len(t.Ranks[rank]))
	for i, a := range t.Ranks[rank] {
		id := t.localChunk(int(a.Chunk)) + 1
		switch {
		case a.Overlap:
			return nil, fmt.Errorf("%w: action %d of rank %d, %v, runs as one with the next; the notation has them apart", ErrNotation, i, rank, a)
		case a.Type == I || a.Type == W:
			return nil,
				fmt.Errorf("%w: action %d of rank %d, %v, is a part of a backward; the notation has whole ones: use a schedule that keeps input and weight gradients together, such as %s", ErrNotation, i, rank, a, DefaultSchedule(len(t.Ranks), max(1, t.NumChunks/len(t.Ranks))))
		case a.Type == B:
			id = -id
		}
		order = append(order, id)
	}
	return order, nil
}

// EdgeSizes are what the shape of a tensor between two chunks of a language model follows from.
type EdgeSizes struct {
	Sequences        int  // of a microbatch
	Positions        int  // of a sequence
	Hidden           int  // features of a position
	ContextParallel  int  // ranks that share the positions of each sequence; 0: 1
	TensorParallel   int  // ranks that share each layer; 0: 1
	SequenceParallel bool // those share the positions of what travels between stages, too
}

// Shape is the shape of what a rank sends and receives for a microbatch, of an activation as of its gradient, as by Megatron-Core's
// get_tensor_shapes: [sequences, positions of the rank, hidden]. (Megatron-Core has the first two in the other
// order.) Positions that the ranks
// can't share evenly are ErrSpec.
func (e EdgeSizes) Shape() ([]int, error) {
	share := max(e.ContextParallel, 1)
	if e.SequenceParallel {
		share *= max(e.TensorParallel, 1)
	}
	if e.Sequences < 1 || e.Positions < 1 || e.Hidden < 1 {
		return nil, fmt.Errorf("%w: %d sequences of %d positions of %d features: each must be at least 1", ErrSpec, e.Sequences, e.Positions,
			e.Hidden)
	}
	if e.Positions%share != 0 {
		return nil, fmt.Errorf("%w: %d ranks can't share %d positions evenly: choose positions that they divide", ErrSpec, share, e.Positions)
	}
	return []int{e.Sequences, e.Positions / share, e.Hidden}, nil
}

// Transfer has the shapes of what a rank exchanges with others for each microbatch of one of its chunks; nil: nothing. The first chunk
// of a model receives no activation and sends no gradient, the last one sends no activation and receives no gradient.
type Transfer struct {
	Chunk                      int   // over all ranks
	RecvForward, SendForward   []int // activations
	RecvBackward, SendBackward []int // gradients
}

// Transfers are those of a rank's chunks, in their order.
func (e EdgeSizes) Transfers(t *Table, rank int) ([]Transfer, error) {
	shape, err := e.Shape()
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= len(t.Ranks) {
		return nil, fmt.Errorf("%w: there is no rank %d; the ranks are 0 to %d", ErrRank, rank, len(t.Ranks)-1)
	}
	where := func(exists bool) []int {
		if !exists {
			return nil
		}
		return slices.Clone(shape)
	}
	var all []Transfer
	for c := range t.NumChunks {
		if t.RankOf(c) == rank {
			hasPrev, hasNext := c > 0, c < t.NumChunks-1
			all = append(all, Transfer{c, where(hasPrev), where(hasNext), where(hasNext && !t.ForwardOnly), where(hasPrev && !t.ForwardOnly)})
		}
	}
	return all, nil
}
