package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The size of a grid around its cell, in ranks and in actions.
const (
	gridRanks   = 1
	gridActions = 3
)

// grid draws the orders around a cell, which stands in brackets on the row that ends in "<-- here".
// For a missing action, the brackets hold that action, before the one at the position.
func (t *Table) grid(rank, position int, missing string) string {
	p := pane{rank: rank, position: position, missing: missing, first: max(0, rank-gridRanks)}
	for r := p.first; r < min(len(t.Ranks), rank+gridRanks+1); r++ {
		p.add(t.window(r, position), position+gridActions+1 < len(t.Ranks[r]))
	}
	return p.String()
}

// pane is a grid being built: rows of cells around a position.
type pane struct {
	rank, position int    // of the cell in brackets
	missing        string // the missing action
	first          int    // rank of the first row
	rows           [][]string
	more           []bool // by row: cells follow that are not drawn
}

// add appends a row below the others.
func (p *pane) add(cells []string, more bool) {
	if p.first+len(p.rows) == p.rank {
		cells = mark(cells, min(p.position, gridActions), p.missing)
	}
	p.rows, p.more = append(p.rows, cells), append(p.more, more)
}

func (p *pane) String() string {
	width := 0
	for _, cells := range p.rows {
		for _, c := range cells {
			width = max(width, utf8.RuneCountInString(c))
		}
	}
	lines := make([]string, len(p.rows))
	nameWidth := len(fmt.Sprint(p.first + len(p.rows) - 1))
	for i, cells := range p.rows {
		line := fmt.Sprintf("  rank %-*d ", nameWidth, p.first+i)
		if p.position > gridActions {
			line += "…"
		}
		for _, c := range cells {
			line += fmt.Sprintf("%-*s", width, c)
		}
		if p.more[i] {
			line += "…"
		}
		line = strings.TrimRight(line, " ")
		if p.first+i == p.rank {
			line += "  <-- here"
			if p.missing != "" {
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

// mark puts brackets around a cell, or a missing action before it.
func mark(cells []string, at int, missing string) []string {
	if missing != "" {
		return slices.Insert(cells, at, "["+missing+"]")
	}
	cells[at] = "[" + strings.TrimSpace(cells[at]) + "]"
	return cells
}
