package scheduler

import (
	"fmt"
	"slices"
	"strings"
)

// Table is the order of every rank's actions.
type Table struct {
	Schedule     string // the generator's name; empty for a table that was read
	Placement    Placement
	NumStages    int // virtual stages
	Microbatches int
	ForwardOnly  bool
	Ranks        [][]Action // Ranks[r] is rank r's order
}

// NumRanks returns the number of ranks.
func (t *Table) NumRanks() int { return len(t.Ranks) }

// RankOf returns the rank that holds a stage.
func (t *Table) RankOf(stage int) int { return t.Placement.Rank(stage, len(t.Ranks)) }

// Chunk returns which of its rank's chunks a stage is, from 0.
func (t *Table) Chunk(stage int) int { return stage / len(t.Ranks) }

// ForwardsAhead returns how many chunk forwards a rank runs before its first backward.
func (t *Table) ForwardsAhead(rank int) int {
	row := t.Ranks[rank]
	if i := slices.IndexFunc(row, func(a Action) bool { return a.Type != F }); i >= 0 {
		return i
	}
	return len(row)
}

// PeakAt returns the place of the action with which a rank first holds as many outputs
// as it ever does.
func (t *Table) PeakAt(rank int) int {
	held, peak, at := 0, 0, 0
	for i, a := range t.Ranks[rank] {
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

// appendRow writes a row's cells, a pair as one.
func appendRow(text []byte, row []Action, separator byte) []byte {
	for i := 0; i < len(row); i++ {
		if i > 0 {
			text = append(text, separator)
		}
		if row[i].Overlap && i+1 < len(row) {
			text = append(text, '(')
			text = append(row[i].appendTo(text), ';')
			i++
			text = append(row[i].appendTo(text), pairSuffix...)
			continue
		}
		text = row[i].appendTo(text)
	}
	return text
}

// pairSuffix ends a pair: (0F5;7B3)OVERLAP_F_B.
const pairSuffix = ")OVERLAP_F_B"

// ParseTable reads a row for each rank, actions separated by single spaces or,
// as other systems write them, by commas. Between commas a cell may be empty:
// somebody drew a bubble there, and an order knows no bubbles. A pair is one cell,
// as String writes it.
//
// The rows hold no more than the orders, so the rest is taken from them: the
// stages and microbatches that occur, a forward-only table where there is no
// gradient, and the first of loop, V and U that puts each stage on its row. It
// is only read; whether it is a sensible table is for Check to say. A file with
// sends and receives is for ReadCSV.
func ParseTable(text string) (*Table, error) {
	if len(text) > MaxTableBytes {
		return nil, fmt.Errorf("%w: a text of %d bytes, the limit is %d", ErrSyntax, len(text), MaxTableBytes)
	}
	t := &Table{ForwardOnly: true}
	text = strings.TrimSuffix(text, "\n")
	for number := 1; ; number++ {
		line, rest, more := strings.Cut(text, "\n")
		row, err := parseRow(strings.TrimSuffix(line, "\r"), number)
		if err != nil {
			return nil, err
		}
		t.addRow(row)
		if !more {
			break
		}
		text = rest
	}
	t.Placement = t.guessPlacement()
	return t, nil
}

// addRow appends the order of the next rank, and makes the table as large as it says.
func (t *Table) addRow(row []Action) {
	for _, a := range row {
		t.NumStages = max(t.NumStages, int(a.Stage)+1)
		t.Microbatches = max(t.Microbatches, int(a.Microbatch)+1)
		t.ForwardOnly = t.ForwardOnly && a.Type == F
	}
	t.Ranks = append(t.Ranks, row)
}

func parseRow(line string, number int) ([]Action, error) {
	separator := " "
	if strings.Contains(line, ",") {
		separator = ","
	}
	row := make([]Action, 0, strings.Count(line, separator)+1)
	column := 1
	for cell := range strings.SplitSeq(line, separator) {
		if cell != "" || separator == " " {
			var err error
			if row, err = parseActions(row, cell); err != nil {
				return nil, fmt.Errorf("row %d, column %d: %w", number, column, err)
			}
		}
		column += len(cell) + len(separator)
	}
	return row, nil
}

// parseActions appends the action of a cell, or both of a pair.
func parseActions(row []Action, text string) ([]Action, error) {
	if !isPair(text) {
		a, err := ParseAction(text)
		return append(row, a), err
	}
	pair, err := readPair(text)
	if err != nil {
		return nil, fmt.Errorf("%w: pair %q: %w", ErrSyntax, shorten(text), err)
	}
	return append(row, pair[:]...), nil
}

func (t *Table) guessPlacement() Placement {
	for p := Loop; p <= U; p++ {
		if p.fits(t.NumStages, len(t.Ranks)) == nil && t.obeys(p) {
			return p
		}
	}
	return Loop
}

func (t *Table) obeys(p Placement) bool {
	for r, row := range t.Ranks {
		for _, a := range row {
			if p.Rank(int(a.Stage), len(t.Ranks)) != r {
				return false
			}
		}
	}
	return true
}
