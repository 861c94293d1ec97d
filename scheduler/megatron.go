package scheduler

import (
	"fmt"
	"slices"
	"strings"
)

// Megatron-Core describes a rank's part of a schedule by four functions of
// megatron/core/pipeline_parallel/schedules.py, for CUDA graphs and for programs that follow a
// schedule themselves. This file computes their results from this package's tables:
// get_schedule_table is Spec.VirtualMicrobatches, get_pp_rank_microbatches is
// Spec.RankMicrobatches, convert_schedule_table_to_order is MegatronOrder, or Table.MegatronOrder
// for any table, and get_tensor_shapes is EdgeSizes.Shape, or EdgeSizes.Transfers for a rank.

// VirtualMicrobatch is the forward of one microbatch through one of a rank's chunks.
// Megatron-Core's schedule table has a column for each, in the order in which every rank runs them.
type VirtualMicrobatch struct {
	Microbatch int // from 0
	LocalChunk int // index among the chunks of the rank, from 0
}

// VirtualMicrobatches returns Megatron-Core's schedule table (get_schedule_table): Microbatches ×
// Chunks forwards in the order of every rank. Backwards have the same order, with the chunks
// counted from the last one. It returns ErrSpec for schedules whose ranks don't share one order:
// those with placement V or U, auto, and a program's own.
func (s Spec) VirtualMicrobatches() ([]VirtualMicrobatch, error) {
	s, err := s.resolvePhases()
	if err != nil {
		return nil, err
	}
	return s.visits(), nil
}

// RankMicrobatches counts the virtual microbatches of a rank. The rank first runs WarmUp forwards,
// then alternates a forward and a backward for the Remaining ones, then runs the remaining
// backwards.
type RankMicrobatches struct {
	Total     int // microbatches × chunks of the rank
	WarmUp    int
	Remaining int // Total − WarmUp
}

// RankMicrobatches counts the virtual microbatches of a rank, as Megatron-Core's
// get_pp_rank_microbatches does. (For training without a pipeline, schedule none, Megatron-Core
// reports a warm-up of 1 and this function 0: each forward is followed by its backward.) It returns
// ErrSpec for the same schedules as VirtualMicrobatches.
func (s Spec) RankMicrobatches(rank int) (RankMicrobatches, error) {
	s, err := s.resolvePhases()
	if err != nil {
		return RankMicrobatches{}, err
	}
	if rank < 0 || rank >= s.Ranks {
		return RankMicrobatches{}, fmt.Errorf("%w: rank %d does not exist: the ranks are 0 to %d", ErrSpec, rank, s.Ranks-1)
	}
	total, warmUp := s.Microbatches*s.Chunks, s.warmUp(rank)
	if s.Schedule == None && !s.ForwardOnly {
		if s.Chunks > 1 {
			return RankMicrobatches{},
				fmt.Errorf("%w: schedule none runs each microbatch forward through all %d chunks and then back, so forwards and backwards of chunks do not alternate: use 1 chunk", ErrSpec, s.Chunks)
		}
		warmUp = 0
	}
	return RankMicrobatches{total, warmUp, total - warmUp}, nil
}

// resolvePhases resolves the spec of a schedule with a warm-up, a steady state of alternating
// forwards and backwards, and a cool-down.
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
		return s, fmt.Errorf("%w: the ranks of schedule %s do not run all forwards in one order after a warm-up: use one of %s", ErrSpec,
			s.Schedule,
			strings.Join(phases, ", "))
	}
	return s, nil
}

// MegatronOrder is Megatron-Core's convert_schedule_table_to_order. It returns a rank's order of
// passes: forwards and backwards follow the schedule table, after a warm-up of warmUp forwards. A
// forward of the rank's chunk c, counted from 0, is c+1, a backward −(c+1).
func MegatronOrder(table []VirtualMicrobatch, chunks, warmUp int) ([]int, error) {
	if chunks < 1 || warmUp < 0 || warmUp > len(table) {
		return nil,
			fmt.Errorf("%w: the warm-up has %d of %d virtual microbatches, with %d chunks on each rank: want 0 to %d, and at least 1 chunk",
				ErrSpec, warmUp, len(table), chunks, len(table))
	}
	order := make([]int, 0, 2*len(table))
	for i := range len(table) + warmUp {
		if i < len(table) {
			v := table[i]
			if v.LocalChunk < 0 || v.LocalChunk >= chunks {
				return nil, fmt.Errorf("%w: virtual microbatch %d names chunk %d, but a rank's chunks are 0 to %d", ErrSpec, i, v.LocalChunk, chunks-1)
			}
			order = append(order, v.LocalChunk+1)
		}
		if i >= warmUp { // backwards count their chunks from the last one
			order = append(order, table[i-warmUp].LocalChunk-chunks)
		}
	}
	return order, nil
}

// MegatronOrder returns a rank's order of passes in Megatron-Core's notation: c+1 for a forward of
// the rank's chunk c, counted from 0, and −(c+1) for a backward. It returns ErrNotation if the
// notation can't express the row: if input and weight gradients are separate, or a forward and a
// backward run as one.
func (t *Table) MegatronOrder(rank int) ([]int, error) {
	if rank < 0 || rank >= len(t.Ranks) {
		return nil, fmt.Errorf("%w: rank %d does not exist: the ranks are 0 to %d", ErrRank, rank, len(t.Ranks)-1)
	}
	order := make([]int, 0, len(t.Ranks[rank]))
	for i, a := range t.Ranks[rank] {
		id := t.localChunk(int(a.Chunk)) + 1
		switch {
		case a.Overlap:
			return nil, fmt.Errorf("%w: action %d of rank %d, %v, overlaps with the next one, which Megatron-Core's notation cannot express",
				ErrNotation, i, rank, a)
		case a.Type == I || a.Type == W:
			return nil,
				fmt.Errorf("%w: action %d of rank %d, %v, is only part of a backward, which Megatron-Core's notation cannot express: use a schedule that keeps input and weight gradients together, such as %s", ErrNotation, i, rank, a, DefaultSchedule(len(t.Ranks), max(1, t.NumChunks/len(t.Ranks))))
		case a.Type == B:
			id = -id
		}
		order = append(order, id)
	}
	return order, nil
}

// EdgeSizes holds the sizes that determine the shape of a tensor between two chunks of a language
// model.
type EdgeSizes struct {
	Sequences        int  // of a microbatch
	Positions        int  // of a sequence
	Hidden           int  // features of a position
	ContextParallel  int  // ranks that share the positions of each sequence; 0: 1
	TensorParallel   int  // ranks that share each layer; 0: 1
	SequenceParallel bool // the ranks of a tensor group also share the positions of tensors between stages
}

// Shape returns the shape of the tensor that a rank sends or receives for a microbatch, an
// activation or its gradient, as Megatron-Core's get_tensor_shapes does: [sequences, positions of
// the rank, hidden]. (Megatron-Core has the first two in the other order.) Positions that the ranks
// can't share evenly are ErrSpec.
func (e EdgeSizes) Shape() ([]int, error) {
	share := max(e.ContextParallel, 1)
	if e.SequenceParallel {
		share *= max(e.TensorParallel, 1)
	}
	if e.Sequences < 1 || e.Positions < 1 || e.Hidden < 1 {
		return nil, fmt.Errorf("%w: sequences %d, positions %d, features %d: each must be at least 1", ErrSpec, e.Sequences, e.Positions,
			e.Hidden)
	}
	if e.Positions%share != 0 {
		return nil, fmt.Errorf("%w: %d ranks cannot share %d positions evenly: choose a multiple of the ranks", ErrSpec, share, e.Positions)
	}
	return []int{e.Sequences, e.Positions / share, e.Hidden}, nil
}

// Transfer holds the shapes of the tensors that a rank exchanges with other ranks for each
// microbatch of one of its chunks; nil: none. The first chunk of a model receives no activation and
// sends no gradient; the last one sends no activation and receives no gradient.
type Transfer struct {
	Chunk                      int   // over all ranks
	RecvForward, SendForward   []int // activations
	RecvBackward, SendBackward []int // gradients
}

// Transfers returns the transfers of a rank's chunks, in their order.
func (e EdgeSizes) Transfers(t *Table, rank int) ([]Transfer, error) {
	shape, err := e.Shape()
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= len(t.Ranks) {
		return nil, fmt.Errorf("%w: rank %d does not exist: the ranks are 0 to %d", ErrRank, rank, len(t.Ranks)-1)
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
