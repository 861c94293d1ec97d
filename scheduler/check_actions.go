package scheduler

import (
	"fmt"
	"slices"
)

// index holds the positions of a table's actions. It exists only for a complete table: every action
// once, on its rank, after the actions on the same rank that it depends on.
type index struct {
	pass       [2]pass // by EdgeKind: F; I or B. A forward-only table has no second
	edges      *Edges
	outOfOrder OutOfOrder
	parts      bool // some actions are cut into parts
	// For a file with communication cells: the positions, counted from 1, of the sends and the
	// waits for them, indexed by the sending chunk, and of the receives, indexed by the receiving
	// chunk. 0 means none.
	sends, receives, waits [2][][]int32
}

// pass holds positions in the ranks' orders, for each chunk.
type pass struct {
	at    [][]int32 // indexed by microbatch
	order [][]int32 // of the chunk's first, second, … action
}

// at returns the place of a chunk's action for a microbatch.
func (ix *index) at(t *Table, kind EdgeKind, chunk, microbatch int32) place {
	return place{t.RankOf(int(chunk)), int(ix.pass[kind].at[chunk][microbatch])}
}

// newIndex checks everything about a table except deadlocks.
func newIndex(t *Table) (*index, error) {
	if err := t.checkSizes(); err != nil {
		return nil, err
	}
	return t.checkActions(false)
}

func (t *Table) checkSizes() error {
	if err := t.checkCounts(); err != nil {
		return err
	}
	if err := t.Placement.fits(t.NumChunks, len(t.Ranks)); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return nil
}

func (t *Table) checkCounts() error {
	if len(t.Ranks) == 0 || t.NumChunks < 1 || t.Microbatches < 1 {
		return fmt.Errorf("%w: ranks %d, chunks %d, microbatches %d: each must be at least 1",
			ErrTable, len(t.Ranks), t.NumChunks, t.Microbatches)
	}
	if t.NumChunks > MaxActions || t.Microbatches > MaxActions || t.numActions() > MaxActions {
		return fmt.Errorf("%w: chunks %d, microbatches %d, actions %d: the limit is %d",
			ErrTable, t.NumChunks, t.Microbatches, t.numActions(), MaxActions)
	}
	return nil
}

func (t *Table) numActions() int {
	n := 0
	for _, row := range t.Ranks {
		n += len(row)
	}
	return n
}

// steps holds, as bits, the passes that have run for a microbatch on a chunk.
type steps uint8

const (
	stepF steps = 1 << iota
	stepI
	stepW
)

var stepsOf = [...]steps{F: stepF, I: stepI, W: stepW, B: stepI | stepW}

// checkActions checks that every action occurs once, on its rank, and that each rank runs a
// microbatch's F before its I, and I before W. It notes the positions. A missing action is reported
// before a wrong order. The rows of a file may hold communications between the actions; the reader
// of the file checks those.
func (t *Table) checkActions(file bool) (*index, error) {
	// A table that claims more chunk-microbatch pairs than it has actions lacks one among the first
	// numActions+1, so memory grows with the actions only.
	claimed := int64(t.NumChunks) * int64(t.Microbatches)
	visits := min(claimed, int64(t.numActions())+1)
	done := make([]steps, visits)
	ix := &index{}
	var order *orderCheck
	if visits == claimed {
		order = newOrderCheck(t.NumChunks)
		ix.pass[ForwardEdge].at = matrix(t.NumChunks, t.Microbatches)
		if !t.ForwardOnly {
			ix.pass[BackwardEdge].at = matrix(t.NumChunks, t.Microbatches)
		}
	}
	disorder := place{rank: -1} // the first
	for r, row := range t.Ranks {
		for i, a := range row {
			if file && a.Type.isCommunication() {
				continue
			}
			if text := t.checkAction(a); text != "" {
				return nil, t.fault(ErrTable, r, i, text)
			}
			if i == 0 || !row[i-1].Overlap {
				if at, text := t.checkGroup(row, i); text != "" {
					return nil, t.fault(ErrTable, r, at, text)
				}
			}
			if home := t.RankOf(int(a.Chunk)); home != r {
				return nil, t.fault(ErrRank, r, i, fmt.Sprintf("%v is on rank %d, but chunk %d is on rank %d in placement %v", a, r, a.Chunk, home,
					t.Placement))
			}
			ix.parts = ix.parts || a.Part > 0
			visit := int64(a.Chunk)*int64(t.Microbatches) + int64(a.Microbatch)
			if visit >= visits || a.Part > 1 || a.Type.IsExchange() { // the first part stands for all
				continue
			}
			before := done[visit]
			if before&stepsOf[a.Type] != 0 {
				return nil, t.faultWith(ErrDuplicate, r, i, "already stands in this row", stepsOf[a.Type])
			}
			done[visit] = before | stepsOf[a.Type]
			if visits < claimed {
				continue
			}
			if need := needs(a.Type); before&need != need && disorder.rank < 0 {
				disorder = place{r, i}
			}
			if kind, ok := a.edge(); ok {
				ix.pass[kind].at[a.Chunk][a.Microbatch] = int32(i)
			}
			if !t.ForwardOnly {
				order.add(a)
			}
		}
	}
	all := stepF | stepI | stepW
	if t.ForwardOnly {
		all = stepF
	}
	for visit, d := range done {
		if d != all {
			return nil, t.missing(Action{Chunk: int32(visit / t.Microbatches), Type: firstStep(all &^ d), Microbatch: int32(visit % t.Microbatches)})
		}
	}
	if r, i := disorder.rank, disorder.position; r >= 0 {
		a := t.Ranks[r][i]
		need := needs(a.Type)
		before := Action{Chunk: a.Chunk, Type: firstStep(need), Microbatch: a.Microbatch}
		return nil, t.faultWith(ErrOrder, r, i, fmt.Sprintf("comes before %v", before), need)
	}
	ix.outOfOrder = order.found
	for kind := range ix.pass {
		ix.pass[kind].order = sortedRows(ix.pass[kind].at)
	}
	var err error
	ix.edges, err = t.Edges()
	return ix, err
}

// fault makes an error about the action at a position.
func (t *Table) fault(kind error, rank, position int, text string) *fault {
	return &fault{table: t, kind: kind, text: text, at: place{rank, position}}
}

// faultWith makes an error about the action at a position, and points to the first action on its
// rank that runs one of the given passes of the same chunk and microbatch.
func (t *Table) faultWith(kind error, rank, position int, text string, some steps) *fault {
	f := t.fault(kind, rank, position, text)
	a := f.subject()
	i := slices.IndexFunc(t.Ranks[rank], func(b Action) bool {
		return b.Type <= B && b.Chunk == a.Chunk && b.Microbatch == a.Microbatch && stepsOf[b.Type]&some != 0
	})
	f.other = &place{rank, i}
	return f
}

// checkAction returns what is wrong with an action.
func (t *Table) checkAction(a Action) string {
	switch {
	case a.Type < F || a.Type > BC:
		return fmt.Sprintf("%v has an unknown type", a)
	case a.Chunk < 0 || int(a.Chunk) >= t.NumChunks:
		return fmt.Sprintf("%v, but the chunks are 0 to %d", a, t.NumChunks-1)
	case a.Microbatch < 0 || int(a.Microbatch) >= t.Microbatches:
		return fmt.Sprintf("%v, but the microbatches are 0 to %d", a, t.Microbatches-1)
	case t.ForwardOnly && !a.Type.IsForward():
		return fmt.Sprintf("%v in a forward-only table", a)
	}
	return ""
}

// firstStep returns the type of the action that runs the first of the missing passes.
func firstStep(lacking steps) Type {
	switch {
	case lacking&stepF != 0:
		return F
	case lacking == stepI|stepW:
		return B
	case lacking&stepI != 0:
		return I
	}
	return W
}

// missing draws the gap where an action is expected: after the last action of its kind for an
// earlier microbatch, or after the last of its microbatch.
func (t *Table) missing(a Action) error {
	rank := t.RankOf(int(a.Chunk))
	gap := 0
	for i, b := range t.Ranks[rank] {
		if b.Type <= B && b.Chunk == a.Chunk && (b.Type == a.Type && b.Microbatch < a.Microbatch || b.Microbatch == a.Microbatch) {
			gap = i + 1
		}
	}
	f := t.fault(ErrIncomplete, rank, gap, fmt.Sprintf("%v is missing on rank %d", a, rank))
	f.missing = a.String()
	return f
}

// matrix returns rows of zeros in one allocation.
func matrix(rows, columns int) [][]int32 {
	all := make([]int32, rows*columns)
	m := make([][]int32, rows)
	for i := range m {
		m[i] = all[i*columns : (i+1)*columns]
	}
	return m
}

// sortedRows returns the rows sorted. A row that is already sorted is shared and not copied: nearly
// every schedule runs the microbatches in ascending order, and a large table has no memory to
// spare.
func sortedRows(rows [][]int32) [][]int32 {
	sorted := slices.Clone(rows)
	for i, row := range sorted {
		if !slices.IsSorted(row) {
			sorted[i] = slices.Clone(row)
			slices.Sort(sorted[i])
		}
	}
	return sorted
}

// needs returns the pass that must run before on the same chunk.
func needs(t Type) steps {
	switch t {
	case F:
		return 0
	case W:
		return stepI
	}
	return stepF
}
