package scheduler

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// grid draws the cells of the file around one, as Table.grid draws orders. Here all
// cells of a column stand one under the other, and a bubble is blank.
func (s *sheet) grid(at spot, missing string) string {
	position := int(at.column) - 1
	first, beyond := max(0, at.rank-gridRanks), min(s.table.NumRanks(), at.rank+gridRanks+1)
	rows := make([][]string, 0, beyond-first)
	more := make([]bool, 0, beyond-first) // behind what is drawn
	width := 0
	rank := -1
	for line := range lines(s.text) {
		rank++
		if rank < first {
			continue
		}
		if rank == beyond {
			break
		}
		cells, rest := window(line, position)
		if rank == at.rank {
			cells = mark(cells, min(position, gridActions), missing)
		}
		for _, c := range cells {
			width = max(width, utf8.RuneCountInString(c))
		}
		rows, more = append(rows, cells), append(more, rest)
	}

	var text strings.Builder
	nameWidth := len(fmt.Sprint(beyond - 1))
	for i, cells := range rows {
		line := fmt.Sprintf("  rank %-*d ", nameWidth, first+i)
		if position > gridActions {
			line += "…"
		}
		for _, c := range cells {
			line += fmt.Sprintf("%-*s", width, c)
		}
		if more[i] {
			line += "…"
		}
		line = strings.TrimRight(line, " ")
		if first+i == at.rank {
			line += "  <-- here"
			if missing != "" {
				line += ", missing"
			}
		}
		text.WriteString(line + "\n")
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// window returns the cells of a line around a position, with room for brackets, and
// whether there are more behind them.
func window(line string, position int) (cells []string, more bool) {
	i := -1
	for c := range strings.SplitSeq(line, ",") {
		i++
		if i > position+gridActions {
			return cells, true
		}
		if i >= position-gridActions {
			cells = append(cells, " "+c+" ")
		}
	}
	return cells, false
}
