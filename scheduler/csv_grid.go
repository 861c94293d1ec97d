package scheduler

import "strings"

// grid draws the cells of the file around one cell, as Table.grid draws orders. The cells of a
// column are aligned, and a bubble is blank.
func (s *csvTable) grid(of int, column int32, missing string) string {
	p := pane{rank: of, position: int(column) - 1, missing: missing, first: max(0, of-gridRanks)}
	rank := -1
	for line := range lines(s.text) {
		rank++
		if rank > of+gridRanks {
			break
		}
		if rank >= p.first && rank < s.table.NumRanks() {
			p.add(window(line, p.position))
		}
	}
	return p.String()
}

// window returns the cells of a line around a position, with room for brackets, and whether more
// cells follow.
func window(line string, position int) (cells []string, more bool) {
	i := -1
	for c := range strings.SplitSeq(line, ",") {
		i++
		if i > position+gridActions {
			return cells, true
		}
		if i >= position-gridActions {
			cells = append(cells, " "+plainCell(c)+" ")
		}
	}
	return cells, false
}
