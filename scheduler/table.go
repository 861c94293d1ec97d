package scheduler

import "math"

// Table is the order of every rank's actions.
type Table struct {
	Schedule     string // the generator's name; empty for a table read from a file
	Placement    Placement
	NumChunks    int // on all ranks together
	Microbatches int
	ForwardOnly  bool
	Ranks        [][]Action // Ranks[r] is rank r's order
	// Skips are the edges between chunks that are not neighbors, sorted by From, then To. A
	// generated table, or one that was read without skips, has none. The caller, who knows the
	// model, sets them with SetSkips before the table is checked.
	Skips []Skip

	edges *Edges          // made from NumChunks and Skips by SetSkips
	turns map[place]turns // of parts that Whole has put together
}

// TableOf makes the table of a step from the recorded orders of all ranks. It derives from the rows
// the chunks and microbatches that occur, and the placement that fits best.
func TableOf(schedule string, ranks [][]Action) *Table {
	t := &Table{Schedule: schedule, ForwardOnly: true}
	for _, row := range ranks {
		t.addRow(row)
	}
	t.Placement, _ = t.guessPlacement()
	return t
}

// NumRanks returns the number of ranks.
func (t *Table) NumRanks() int { return len(t.Ranks) }

// RankOf returns the rank that holds a chunk.
func (t *Table) RankOf(chunk int) int { return t.Placement.Rank(chunk, len(t.Ranks)) }

// localChunk returns a chunk's index among those of its rank, from 0.
func (t *Table) localChunk(chunk int) int { return chunk / len(t.Ranks) }

// Width returns the number of actions that run as one from i on: 2 for an overlapped pair, more for
// one that is cut into parts, otherwise 1.
func Width(row []Action, i int) int {
	n := 1
	for i+n < len(row) && row[i+n-1].Overlap {
		n++
	}
	return n
}

// ForwardsAhead returns how many forwards of chunks a rank runs before its first backward.
func (t *Table) ForwardsAhead(rank int) int {
	row := t.Ranks[rank]
	n := 0
	for _, a := range row {
		switch {
		case a.Type == F && a.Part <= 1:
			n++
		case !a.Type.IsForward():
			return n
		}
	}
	return n
}

// PeakAt returns the position of the action at which a rank first holds its largest number of
// outputs.
func (t *Table) PeakAt(rank int) int {
	held, peak, at := 0, 0, 0
	for i, a := range t.Ranks[rank] {
		if a.Part > 1 {
			continue
		}
		switch a.Type {
		case F:
			if held++; held > peak {
				peak, at = held, i
			}
			if t.ForwardOnly {
				held--
			}
		case B, W:
			held--
		}
	}
	return at
}

// String writes a row for each rank, actions separated by single spaces.
func (t *Table) String() string {
	var text []byte
	for r, row := range t.Ranks {
		if r > 0 {
			text = append(text, '\n')
		}
		text = appendRow(text, row, ' ')
	}
	return string(text)
}

// appendRow writes a row's cells, a pair as one cell.
func appendRow(text []byte, row []Action, separator byte) []byte {
	for i := 0; i < len(row); i++ {
		if i > 0 {
			text = append(text, separator)
		}
		n := Width(row, i)
		if n > 1 {
			text = append(text, '(')
		}
		text = row[i].appendTo(text)
		for range n - 1 {
			i++
			text = row[i].appendTo(append(text, ';'))
		}
		if n > 1 {
			text = append(text, pairSuffix...)
		}
	}
	return text
}

// pairSuffix ends a pair: (0F5;7B3)OVERLAP_F_B, or (0F5.1;0FD5.1;7B3.1;…)OVERLAP_F_B.
const pairSuffix = ")OVERLAP_F_B"

// addRow appends the order of the next rank and raises the table's sizes to what occurs in it.
func (t *Table) addRow(row []Action) {
	for _, a := range row {
		if a.Type > B {
			continue
		}
		t.NumChunks = max(t.NumChunks, int(a.Chunk)+1)
		t.Microbatches = max(t.Microbatches, int(a.Microbatch)+1)
		t.ForwardOnly = t.ForwardOnly && a.Type == F
	}
	t.Ranks = append(t.Ranks, row)
}

// guessPlacement returns the placement that puts the largest number of actions on their ranks. ok
// is false if no placement fits the number of chunks.
func (t *Table) guessPlacement() (best Placement, ok bool) {
	least := math.MaxInt
	if len(t.Ranks) == 0 {
		return best, false
	}
	for p := Loop; p <= U; p++ {
		if p.fits(t.NumChunks, len(t.Ranks)) != nil {
			continue
		}
		if n := t.misplaced(p); n < least {
			least, best, ok = n, p, true
		}
	}
	return best, ok
}

func (t *Table) misplaced(p Placement) int {
	n := 0
	for r, row := range t.Ranks {
		for _, a := range row {
			if a.Type <= B && p.Rank(int(a.Chunk), len(t.Ranks)) != r {
				n++
			}
		}
	}
	return n
}
