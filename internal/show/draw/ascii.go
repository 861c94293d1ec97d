package draw

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// idleMark marks idle time, goingOn the continuation of an action.
const (
	idleMark = '.'
	goingOn  = '='
)

// ASCII writes charts as text. If all times are multiples of a common unit, a column is one unit:
//
//	        0               5               10
//	rank 0  0F0 0F1 0F2 0F3 .   .   .   .   .   .   0B0 === 0F4 …
//
// A pair is one cell, 0F5+7B3===. In a table that is cut at its exchanges of tokens, each part has a cell, 0F5.1, and
// the exchanges stand below their rank, on its link. Other times, such as measured ones, use columns of one letter, 0F0===0F1==..; an
// action too short for its name is drawn as its type. Text wider than width is broken into blocks, each with a ruler
// of time; width 0 does not break it. The times of each rank follow below.
//
// It fails with ErrTooLarge if columns times lanes is above MaxCells.
func ASCII(w io.Writer, width int, charts ...Chart) error {
	if err := checkAll(charts); err != nil {
		return err
	}
	scales := make([]textScale, len(charts))
	for i := range charts {
		scales[i] = newTextScale(charts, charts[i].Unit)
		lanes := len(charts[i].rows())
		if columns := charts[i].makespan() / scales[i].duration; columns*float64(lanes) > MaxCells {
			return fmt.Errorf("%w: text of %.0f columns for each of %d ranks, the limit is %d cells: use csv, json or perfetto instead",
				ErrTooLarge, columns, lanes, MaxCells)
		}
	}
	out := buffered(w)
	for i := range charts {
		if i > 0 {
			fmt.Fprintln(out)
		}
		c := &charts[i]
		f := c.Figures()
		fmt.Fprintf(out, "%s\n%s\n\n", oneLine(c.Title), oneLine(strings.Join(c.headline(f), ", ")))
		scales[i].write(out, c, width)
		writeFigures(out, c, f)
	}
	return out.Flush()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// textScale maps time to columns.
type textScale struct {
	duration float64 // duration of a column
	letters  int     // letters of a column; 1: scaled columns
	unit     string
}

// newTextScale returns the scale for the charts of one unit.
func newTextScale(charts []Chart, unit string) textScale {
	t := measureTimes(charts, unit)
	s := textScale{unit: unit}
	// Parts have long names and are short, so units would take several times as many columns.
	if !t.exchanges && t.common > 0 && 0 < t.shortest && t.shortest <= maxUnitsOfShortest*t.common &&
		t.makespan/t.common*float64(t.lanes) <= MaxCells {
		s.duration = t.common
		s.letters = s.cell(charts)
		return s
	}
	// A quarter of the actions may be too short for their names. If most are much shorter than the others, the others
	// decide.
	room := float64(t.label + 1)
	s.letters = 1
	s.duration = max(t.quartile/room, t.makespan/(maxUnitsOfShortest*room*float64(max(1, t.boxes))))
	if !(s.duration > 0) {
		s.duration = 1
	}
	return s
}

// maxUnitsOfShortest bounds the columns of the shortest action: with more, most of the text would be continuation
// marks.
const maxUnitsOfShortest = 4

// cell returns the letters of a column with room for any name and a space. A pair has a column for each of its names,
// or all in one.
func (s textScale) cell(charts []Chart) int {
	cell := 2
	var label []byte
	for i := range charts {
		if charts[i].Unit != s.unit {
			continue
		}
		for _, row := range charts[i].rows() {
			for x := range row.boxes() {
				if from, to := s.columns(x.start, x.end); to-from < 2 {
					label = appendLabel(label[:0], x.actions)
					cell = max(cell, len(label)+1)
				}
				for _, a := range x.actions {
					label = appendAction(label[:0], a)
					cell = max(cell, len(label)+1)
				}
			}
		}
	}
	return cell
}

// columns returns the range of columns between two times.
func (s textScale) columns(start, end float64) (from, to int) {
	return int(math.Round(start / s.duration)), int(math.Round(end / s.duration))
}

// write writes the lanes, block by block.
func (s textScale) write(out *bufio.Writer, c *Chart, width int) {
	_, columns := s.columns(0, c.makespan())
	names, lanes := 0, c.rows()
	for _, l := range lanes {
		names = max(names, utf8.RuneCountInString(oneLine(l.Name)))
	}
	names += 2
	block := max(1, columns)
	if width > 0 {
		block = max(1, min(columns, (width-names)/s.letters))
	}
	rows := make([][]byte, len(lanes))
	short := 0
	for r, l := range lanes {
		var n int
		rows[r], n = s.row(l, columns, block)
		short += n
	}
	for first := 0; first < columns; first += block {
		beyond := min(first+block, columns)
		fmt.Fprintf(out, "%*s%s\n", names, "", s.ruler(first, beyond))
		for r, row := range rows {
			part := strings.TrimRight(string(row[first*s.letters:beyond*s.letters]), " ")
			fmt.Fprintf(out, "%-*s%s\n", names, oneLine(lanes[r].Name), part)
		}
		fmt.Fprintln(out)
	}
	if short > 0 {
		fmt.Fprintf(out, "%s shorter than half a column left out\n\n", words.Plural(short, "action"))
	}
}

// row returns the text of a lane, and the number of actions that are too short to be drawn.
func (s textScale) row(l *Lane, columns, block int) (row []byte, short int) {
	row = make([]byte, columns*s.letters)
	for i := range row {
		row[i] = ' '
		if i%s.letters == 0 {
			row[i] = idleMark
		}
	}
	var label []byte
	for x := range l.boxes() {
		from, to := s.columns(x.start, x.end)
		if from == to {
			short += len(x.actions)
			continue
		}
		from, to = from*s.letters, to*s.letters
		switch label = appendLabel(label[:0], x.actions); {
		case s.letters > 1 && len(x.actions) == 1:
			copy(row[from:], label)
			for i := from + s.letters; i < to; i += s.letters {
				fill(row[i : i+len(label)])
			}
		default: // a mark after the label separates it from the next one
			end := to
			if s.letters > 1 {
				end-- // a space
			}
			fill(row[from:end])
			writeLabel(row, from, to-1, block*s.letters, label)
		}
	}
	return row, short
}

// writeLabel writes a label between two positions of a row, shortened if necessary. A name that the end of a block
// would break moves to the next block.
func writeLabel(row []byte, from, to, block int, label []byte) {
	unbroken := func(at, n int) int {
		if end := (at/block + 1) * block; at+n > end && n <= block {
			return end
		}
		return at
	}
	forward, backward, pair := bytes.Cut(label, []byte{'+'})
	first := unbroken(from, len(forward))
	plus := first + len(forward)
	end, second := plus, 0
	if pair {
		second = unbroken(plus+1, len(backward))
		end = second + len(backward)
	}
	if first > from || end > to {
		letters := "FIWB"
		if bytes.ContainsAny(forward, "DC") { // of an exchange: whether tokens go or come back
			letters = "DC"
		}
		row[from] = forward[bytes.IndexAny(forward, letters)]
	}
	if end > to {
		return
	}
	copy(row[first:], forward)
	if pair {
		row[plus] = '+'
		copy(row[second:], backward)
	}
}

func fill(place []byte) {
	for i := range place {
		place[i] = goingOn
	}
}

// ruler returns the time of the first column, and round times if there is room.
func (s textScale) ruler(first, beyond int) []byte {
	line := []byte(number(float64(first) * s.duration))
	reserve := float64(len(number(float64(beyond)*s.duration)) + 2)
	every := step(s.duration * max(rulerLetters, reserve) / float64(s.letters))
	for k := math.Ceil(float64(first) * s.duration / every); ; k++ {
		column := int(math.Round(k * every / s.duration))
		if column >= beyond {
			return line
		}
		at, text := (column-first)*s.letters, number(k*every)
		if at < len(line)+2 || at+len(text) > (beyond-first)*s.letters {
			continue
		}
		for len(line) < at {
			line = append(line, ' ')
		}
		line = append(line, text...)
	}
}

// rulerLetters is the approximate distance of times in a ruler.
const rulerLetters = 16

// writeFigures writes the times of each rank.
func writeFigures(out *bufio.Writer, c *Chart, f Figures) {
	names, wide := 0, len("busy")
	for r := range c.Lanes {
		names = max(names, utf8.RuneCountInString(oneLine(c.Lanes[r].Name)))
		wide = max(wide, len(number(f.Busy[r])), len(number(f.Idle[r])))
	}
	fmt.Fprintf(out, "%-*s  %*s  %*s  peak in flight\n", names, "", wide, "busy", wide, "idle")
	for r := range c.Lanes {
		fmt.Fprintf(out, "%-*s  %*s  %*s  %14d\n", names, oneLine(c.Lanes[r].Name),
			wide, number(f.Busy[r]), wide, number(f.Idle[r]), f.PeakInFlight[r])
	}
}
