package actors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Replica is one of several copies of a pipeline. Each computes some of a step's and of a
// validation's microbatches.
type Replica struct {
	Table, EvalTable *scheduler.Table // tables of its own microbatches; nil: it has none
	// The number of microbatches before its own.
	First, EvalFirst int
}

// replicas returns all replicas of a run: one if the Spec has none.
func (s *Spec) replicas() []Replica {
	if len(s.Replicas) > 0 {
		return s.Replicas
	}
	return []Replica{{Table: s.Table, EvalTable: s.EvalTable}}
}

// ranks returns the number of stage actors.
func (s *Spec) ranks() int {
	if s.Grid == nil {
		return s.Table.NumRanks()
	}
	return s.Grid.World()
}

// place returns a rank's place in the grid.
func (s *Spec) place(rank int) grid.Coordinates {
	if s.Grid == nil {
		return grid.Coordinates{grid.Pipeline: rank}
	}
	return s.Grid.Coordinates(rank)
}

// group returns the ranks of a stage that share its layers, in the pipeline of the given rank.
func (s *Spec) group(rank, stage int) []int32 {
	if s.Grid == nil {
		return []int32{int32(stage)}
	}
	at := s.Grid.Coordinates(rank)
	at[grid.Pipeline] = stage
	all := make([]int32, s.Grid.TensorSize(stage))
	for i := range all {
		at[grid.Tensor] = i
		all[i] = int32(s.Grid.Rank(at))
	}
	return all
}

// tensorSize returns how many ranks share the layers of a rank.
func (s *Spec) tensorSize(rank int) int {
	if s.Grid == nil {
		return 1
	}
	return s.Grid.TensorSize(s.place(rank)[grid.Pipeline])
}

// StageName returns the name of a rank's actor for users, as in Snapshot.Actor.
func (s *Spec) StageName(rank int) string { return s.stageName(rank) }

// stageName returns the name of a rank's actor for users: its stage and, if several ranks have that
// stage, what distinguishes them.
func (s *Spec) stageName(rank int) string {
	at := s.place(rank)
	name := stageName(at[grid.Pipeline])
	if s.Grid == nil {
		return name
	}
	var more []string
	for _, d := range []grid.Dimension{grid.Data, grid.Context, grid.Tensor} {
		if s.Grid.Size(d) > 1 {
			more = append(more, fmt.Sprintf("%v %d", d, at[d]))
		}
	}
	if len(more) == 0 {
		return name
	}
	return name + " (" + strings.Join(more, ", ") + ")"
}

// slots returns how many ranks hold a part of each stage, and slot the index of a rank among them.
// Reports are added in this order.
func (s *Spec) slots() int {
	if s.Grid == nil {
		return 1
	}
	return s.Grid.Size(grid.Data) * s.Grid.Size(grid.Context) * s.Grid.Size(grid.Tensor)
}

func (s *Spec) slot(rank int) int {
	if s.Grid == nil {
		return 0
	}
	at := s.Grid.Coordinates(rank)
	return (at[grid.Data]*s.Grid.Size(grid.Context)+at[grid.Context])*s.Grid.Size(grid.Tensor) + at[grid.Tensor]
}

// normSlot is slot for a part of a parameter's norm. Of the experts' matrices, the ranks with the same experts report parts that
// follow each other. They are added in the order of the elements, as if each rank had all experts.
func (s *Spec) normSlot(rank, param int) int {
	if s.Grid == nil || !s.Grid.HasExpertGroups() || s.Experts == nil || !s.Experts(param) {
		return s.slot(rank)
	}
	place, group := s.Grid.ExpertPlace(rank)
	return s.slot(s.Grid.ExpertSharers(rank)[place*s.Grid.Size(grid.ExpertCopies)+group])
}

// checkWorld compares the grid with the tables.
func (s *Spec) checkWorld() error {
	all := s.replicas()
	if s.Grid != nil {
		if n := s.Grid.Size(grid.Data); n != len(all) {
			return fmt.Errorf("%w: there are %d replicas in a grid of %v", ErrSpec, len(all), s.Grid)
		}
		if n := s.Grid.Size(grid.Pipeline); n != s.Table.NumRanks() {
			return fmt.Errorf("%w: the table has %d ranks, but the grid is %v", ErrSpec, s.Table.NumRanks(), s.Grid)
		}
	}
	train, eval := 0, 0
	for i, r := range all {
		if r.Table == nil {
			return fmt.Errorf("%w: replica %d of %d has no microbatches", ErrSpec, i, len(all))
		}
		if r.First != train || r.EvalFirst != eval {
			return fmt.Errorf("%w: replica %d starts with microbatches %d and %d, but %d and %d microbatches are before it", ErrSpec, i, r.First,
				r.EvalFirst,
				train, eval)
		}
		train += r.Table.Microbatches
		for _, t := range []*scheduler.Table{r.Table, r.EvalTable} {
			if t != nil && (t.NumRanks() != s.Table.NumRanks() || t.NumChunks != s.Table.NumChunks || t.Placement != s.Table.Placement) {
				return fmt.Errorf("%w: a table has %d chunks on %d ranks (placement %v), but another has %d on %d (%v)",
					ErrSpec, t.NumChunks, t.NumRanks(), t.Placement, s.Table.NumChunks, s.Table.NumRanks(), s.Table.Placement)
			}
		}
		if r.EvalTable != nil {
			if s.EvalTable == nil || !r.EvalTable.ForwardOnly {
				return fmt.Errorf("%w: replica %d has a validation table, but the run has none or it is not forward-only", ErrSpec, i)
			}
			eval += r.EvalTable.Microbatches
		}
	}
	if train*s.MicrobatchSize != s.Sequences {
		return fmt.Errorf("%w: %d microbatches of %d sequences do not make the step's %d sequences", ErrSpec, train, s.MicrobatchSize,
			s.Sequences)
	}
	return nil
}

// alike reports whether all replicas compute the same actions in the same order. Only then may they
// wait for each other in the middle of a step; otherwise each could wait for an action that the
// other reaches later.
func (s *Spec) alike() bool { return Alike(s.replicas()) }

// Alike reports whether all replicas have the same training table.
func Alike(all []Replica) bool {
	for _, r := range all {
		if r.Table != all[0].Table && !slices.EqualFunc(r.Table.Ranks, all[0].Table.Ranks, slices.Equal[[]scheduler.Action]) {
			return false
		}
	}
	return true
}

// microbatches returns the number of microbatches of a phase, of all replicas.
func (s *Spec) microbatches(p event.Phase) (n int) {
	for _, r := range s.replicas() {
		if t := r.table(p); t != nil {
			n += t.Microbatches
		}
	}
	return n
}

func (r *Replica) table(p event.Phase) *scheduler.Table {
	if p == event.Eval {
		return r.EvalTable
	}
	return r.Table
}

// first returns the number of microbatches of a phase before the replica's own.
func (r *Replica) first(p event.Phase) int {
	if p == event.Eval {
		return r.EvalFirst
	}
	return r.First
}

// route returns a chunk's route; without routes each chunk sends one tensor to the next one, and
// gets its gradient back.
func (s *Spec) route(chunk int) stages.Route {
	if s.Routes != nil {
		return s.Routes[chunk]
	}
	var r stages.Route
	if chunk > 0 {
		r.Ins = []stages.Port{{Chunk: chunk - 1}}
	}
	if chunk < s.Table.NumChunks-1 {
		r.Outs = []stages.Port{{Chunk: chunk + 1}}
	}
	r.GradIns, r.GradOuts = r.Ins, r.Outs
	return r
}

// Skips returns the edges between chunks that are not neighbors, for Table.SetSkips.
func Skips(routes []stages.Route) (skips []scheduler.Skip) {
	for chunk, r := range routes {
		for _, p := range r.Outs {
			if s := (scheduler.Skip{From: chunk, To: p.Chunk}); s.To > s.From+1 && !slices.Contains(skips, s) {
				skips = append(skips, s)
			}
		}
	}
	return skips
}
