package scheduler

import (
	"fmt"
	"strings"
)

// ReadCSV reads a table as PyTorch writes it: a row for each rank, its cells in their
// order, separated by commas. A cell is
//
//	STAGE TYPE [MICROBATCH]     3F5, 3SEND_F5, 3UNSHARD
//	(action;action)OVERLAP_F_B  a forward and a B or I that run as one
//	                            nothing: a bubble that somebody drew
//
// with the types F, I, W and B; SEND_F, RECV_F, SEND_B and RECV_B; and without a
// microbatch UNSHARD, RESHARD and REDUCE_GRAD. Lines may end as on Windows, and the
// last one may end or not. Nothing else is allowed: no spaces, no leading zeros, no
// empty rows.
//
// A table holds actions only. So sends, receives and collectives are checked and
// dropped: in a run they follow from the order. A file that has one send or receive
// must have all that it needs, in an order in which the ranks come to their ends when
// each receive waits for its send, and a send for nothing.
//
// What is read can be run: Check has nothing to say about it. Sizes and placement are
// taken from the rows, as by ParseTable. An error begins with the name, and with the
// row and the column of a cell, both from 1 (row 1 is rank 0, and bubbles count as
// cells); it wraps ErrSyntax, or what Check would return.
func ReadCSV(name, text string) (*Table, error) {
	s := &sheet{name: name, text: text, table: &Table{ForwardOnly: true}}
	for _, step := range []func() error{
		s.read,
		s.checkStages, s.choosePlacement,
		s.checkOnce, s.checkComplete, s.checkOrder,
		s.checkTransfers, s.checkMatches, s.checkParameters,
		s.checkProgress,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s.table, nil
}

// sheet is a file while it is read. Unlike a table it knows the cells.
type sheet struct {
	name, text string
	table      *Table
	columns    [][]int32         // by rank and position in its order: the action's column
	others     [][]communication // by rank, from left to right

	// The columns by visit (stage · microbatches + microbatch), 0 where there is none.
	// Of the steps, by F, I and W; a B is the I and the W.
	steps [3][]int32
	// Of the sends by the stage that sends, and of the receives by the stage that
	// receives; by EdgeKind. Empty in a file without them.
	sends, receives [2][]int32
}

// spot is a cell of a file.
type spot struct {
	rank   int
	column int32
}

func (s spot) String() string { return fmt.Sprintf("row %d, column %d", s.rank+1, s.column) }

func (s *sheet) prefix() string {
	if s.name == "" {
		return ""
	}
	return s.name + ": "
}

// failAt makes an error about a cell. With a missing cell, that one belongs in front
// of the spot.
func (s *sheet) failAt(at spot, missing string, kind error, format string, args ...any) error {
	return fmt.Errorf("%s%v: %w: %s\n%s", s.prefix(), at, kind, fmt.Sprintf(format, args...), s.grid(at, missing))
}

func (s *sheet) read() error {
	if len(s.text) > MaxTableBytes {
		return fmt.Errorf("%s%w: %d bytes, the limit is %d", s.prefix(), ErrSyntax, len(s.text), MaxTableBytes)
	}
	actions := 0
	for line := range lines(s.text) {
		if err := s.readRow(line, &actions); err != nil {
			return err
		}
	}
	return nil
}

// lines yields the lines of a text without their ends. Only the last line end of a
// text has no line behind it.
func lines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			if !yield(strings.TrimSuffix(line, "\r")) {
				return
			}
		}
	}
}

// readRow reads the order of the next rank; actions counts those of all.
func (s *sheet) readRow(line string, actions *int) error {
	at := spot{rank: s.table.NumRanks()}
	var row []Action
	var columns []int32
	var others []communication
	for text := range strings.SplitSeq(line, ",") {
		at.column++
		if text == "" {
			continue
		}
		c, err := parseCell(text)
		if err != nil {
			return fmt.Errorf("%s%v: %w", s.prefix(), at, err)
		}
		if *actions += c.numActions; *actions > MaxActions {
			return fmt.Errorf("%s%v: %w: more than %d actions", s.prefix(), at, ErrTable, MaxActions)
		}
		for _, a := range c.actions[:c.numActions] {
			row, columns = append(row, a), append(columns, at.column)
		}
		if c.numActions == 0 {
			c.communication.column = at.column
			others = append(others, c.communication)
		}
	}
	if len(row) == 0 {
		at.column = 1
		return fmt.Errorf("%s%v: %w: the row has no action, but every rank holds a stage", s.prefix(), at, ErrSyntax)
	}
	s.table.addRow(row)
	s.columns, s.others = append(s.columns, columns), append(s.others, others)
	return nil
}

// at returns the spot of an action.
func (s *sheet) at(rank, position int) spot { return spot{rank, s.columns[rank][position]} }

// visit is the place of a microbatch's visit to a stage in the lists by visit.
func (s *sheet) visit(stage, microbatch int) int { return stage*s.table.Microbatches + microbatch }

// cursor stands between the cells of a row.
type cursor struct{ action, other int }

// sheetCell is a cell that is not empty.
type sheetCell struct {
	spot
	actions []Action // nil: a communication
	other   communication
	beyond  cursor
}

// next returns the cell behind a cursor; ok is false at the end of the row.
func (s *sheet) next(rank int, c cursor) (found sheetCell, ok bool) {
	row, others := s.table.Ranks[rank], s.others[rank]
	if c.other < len(others) && (c.action == len(row) || others[c.other].column < s.columns[rank][c.action]) {
		other := others[c.other]
		return sheetCell{spot: spot{rank, other.column}, other: other, beyond: cursor{c.action, c.other + 1}}, true
	}
	if c.action == len(row) {
		return sheetCell{}, false
	}
	beyond := cursor{c.action + Width(row, c.action), c.other}
	return sheetCell{spot: s.at(rank, c.action), actions: row[c.action:beyond.action], beyond: beyond}, true
}
