package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// How far a grid reaches around its cell, in ranks and in actions.
const (
	gridRanks   = 1
	gridActions = 3
)

// grid draws the orders around a cell, which stands in brackets on the row that
// ends in "<-- here". With a missing action, the brackets hold that one, in
// front of what stands at the position.
func (t *Table) grid(rank, position int, missing string) string {
	first, beyond := max(0, rank-gridRanks), min(len(t.Ranks), rank+gridRanks+1)
	rows := make([][]string, 0, beyond-first)
	width := 0
	for r := first; r < beyond; r++ {
		cells := t.window(r, position)
		if r == rank {
			cells = mark(cells, min(position, gridActions), missing)
		}
		for _, c := range cells {
			width = max(width, utf8.RuneCountInString(c))
		}
		rows = append(rows, cells)
	}

	lines := make([]string, len(rows))
	nameWidth := len(fmt.Sprint(beyond - 1))
	for i, cells := range rows {
		line := fmt.Sprintf("  rank %-*d ", nameWidth, first+i)
		if position > gridActions {
			line += "…"
		}
		for _, c := range cells {
			line += fmt.Sprintf("%-*s", width, c)
		}
		if position+gridActions+1 < len(t.Ranks[first+i]) {
			line += "…"
		}
		line = strings.TrimRight(line, " ")
		if first+i == rank {
			line += "  <-- here"
			if missing != "" {
				line += ", missing"
			}
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// window returns the actions around a position, with room for brackets.
func (t *Table) window(rank, position int) []string {
	row := t.Ranks[rank]
	beyond := min(len(row), position+gridActions+1)
	var cells []string
	for i := max(0, position-gridActions); i < beyond; i++ {
		cells = append(cells, " "+row[i].String()+" ")
	}
	return cells
}

// mark puts brackets around a cell, or puts a missing action in front of it.
func mark(cells []string, at int, missing string) []string {
	if missing != "" {
		return slices.Insert(cells, at, "["+missing+"]")
	}
	cells[at] = "[" + strings.TrimSpace(cells[at]) + "]"
	return cells
}
