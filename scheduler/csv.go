package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ReadCSV reads a table as PyTorch writes it: one row for each rank, with its actions in order,
// separated by commas. A cell is one of
//
//	STAGE TYPE [MICROBATCH]     3F5, 3SEND_F5, 3UNSHARD
//	(action;action)OVERLAP_F_B  a forward and a B or I that run as one
//	(an empty cell)             a bubble, ignored
//
// with the types F, I, W and B; SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F and WAIT_SEND_B; and,
// without a microbatch, UNSHARD, RESHARD, REDUCE_GRAD and WAIT_REDUCE_GRAD. PyTorch's STAGE is this
// package's chunk. A cell may have spaces around it and may stand in double quotes. The file may
// begin with a byte order mark, as spreadsheets write it. Line ends may be LF or CR LF, and the
// last one may be missing. Nothing else is accepted: no leading zeros, no empty rows.
//
// A table holds actions only. ReadCSV checks sends, receives, waits and collectives and then drops
// them, since a run derives them from the order. A file that has one send or receive must have all
// of them. Their order must let every rank finish when each receive waits for its send, each wait
// for the receive of what was sent, and a send for nothing. PyTorch 2.15 waits once for each send
// and each REDUCE_GRAD, earlier versions never; so a file that has one wait must have all of them.
//
// The result passes Check. The rows don't state the sizes of the table, so ReadCSV derives them:
// the chunks and microbatches that occur, forward-only if there is no gradient, and the first of
// the placements loop, V and U that puts each chunk on its row. An error begins with name. For a
// cell it adds the row and the column, both counted from 1 (row 1 is rank 0, and bubbles count as
// cells). It wraps ErrSyntax, or the error that Check would return.
//
// The rows can't say which skip edges a model has. The caller gives them here or with SetSkips. A
// file with sends and receives can't have skips, since PyTorch's cells don't name the chunk at the
// other end.
func ReadCSV(name, text string, skips ...Skip) (*Table, error) {
	s := &csvTable{name: name, text: strings.TrimPrefix(text, byteOrderMark), skips: skips, table: &Table{ForwardOnly: true}}
	for _, step := range []func() error{
		s.read, s.checkChunks, s.choosePlacement, s.checkActions,
		s.checkTransfers, s.checkMatches, s.checkParameters,
		s.checkProgress, s.dropCommunications,
	} {
		if err := step(); err != nil {
			return nil, s.locate(err)
		}
	}
	if len(skips) > 0 {
		if err := s.table.SetSkips(skips); err != nil {
			return nil, fmt.Errorf("%s%w", s.prefix(), err)
		}
	}
	return s.table, nil
}

// csvTable is a file during reading.
type csvTable struct {
	name, text string
	skips      []Skip
	table      *Table    // includes communications until they are dropped
	columns    [][]int32 // by rank and position in its order, from 1
	index      *index
}

func (s *csvTable) prefix() string {
	if s.name == "" {
		return ""
	}
	return s.name + ": "
}

// locate adds the place in the file to an error.
func (s *csvTable) locate(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	text := f.text
	if f.other != nil {
		text = fmt.Sprintf("%v %s, in column %d", f.subject(), text, s.column(*f.other))
	}
	text += f.waits(func(w wait) string {
		return fmt.Sprintf("%s: %s in %s", s.spot(w.at), w.text, s.spot(w.needed))
	})
	column := s.column(f.at)
	if f.missing != "" {
		column = 1 // or after the previous action
		if f.at.position > 0 {
			column = 1 + s.columns[f.at.rank][f.at.position-1]
		}
	}
	return fmt.Errorf("%s%s: %w: %s\n%s", s.prefix(), positionName(f.at.rank, column), f.kind, text, s.grid(f.at.rank, column, f.missing))
}

// column returns the column of a place, 0 after the end of its row.
func (s *csvTable) column(at place) int32 {
	if row := s.columns[at.rank]; at.position < len(row) {
		return row[at.position]
	}
	return 0
}

func (s *csvTable) spot(at place) string { return positionName(at.rank, s.column(at)) }

func positionName(rank int, column int32) string {
	return fmt.Sprintf("row %d, column %d", rank+1, column)
}

// fail makes an error about the cell at a position.
func (s *csvTable) fail(at place, kind error, format string, args ...any) error {
	return s.table.fault(kind, at.rank, at.position, fmt.Sprintf(format, args...))
}

func (s *csvTable) read() error {
	if len(s.text) > MaxTableBytes {
		return fmt.Errorf("%s%w: the file has %d bytes; the limit is %d", s.prefix(), ErrSyntax, len(s.text), MaxTableBytes)
	}
	if isUTF16(s.text) {
		return fmt.Errorf("%s%w: the file is encoded in UTF-16: save it as UTF-8", s.prefix(), ErrSyntax)
	}
	actions := 0
	for line := range lines(s.text) {
		if err := s.readRow(line, &actions); err != nil {
			return err
		}
	}
	return nil
}

// lines yields the lines of a text without their line ends. A line end at the end of the text
// starts no further line.
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
func (s *csvTable) readRow(line string, actions *int) error {
	rank := s.table.NumRanks()
	room := 0 // rows are often as long as the one above, and a cell has 4 bytes with its comma
	if rank > 0 {
		room = min(len(s.columns[rank-1]), (len(line)+1)/4)
	}
	row, columns := make([]Action, 0, room), make([]int32, 0, room)
	column, before := int32(0), *actions
	for text := range strings.SplitSeq(line, ",") {
		column++
		if text = plainCell(text); text == "" {
			continue
		}
		c, err := parseCell(text)
		if err != nil {
			return fmt.Errorf("%s%s: %w", s.prefix(), positionName(rank, column), err)
		}
		for _, a := range c.all() {
			if !a.Type.isCommunication() {
				*actions++
			}
			row, columns = append(row, a), append(columns, column)
		}
		if *actions > MaxActions {
			return fmt.Errorf("%s%s: %w: the table has more than %d actions", s.prefix(), positionName(rank, column), ErrTable, MaxActions)
		}
	}
	if *actions == before {
		return fmt.Errorf("%s%s: %w: the row has no action, but every rank must hold a chunk", s.prefix(), positionName(rank, 1), ErrSyntax)
	}
	s.table.addRow(row)
	s.columns = append(s.columns, columns)
	return nil
}

// cells yields the places of all cells, row by row, a pair as two.
func (s *csvTable) cells(yield func(place, Action) bool) {
	for r, row := range s.table.Ranks {
		for i, a := range row {
			if !yield(place{r, i}, a) {
				return
			}
		}
	}
}

// dropCommunications removes all cells but the actions.
func (s *csvTable) dropCommunications() error {
	for r, row := range s.table.Ranks {
		actions := slices.DeleteFunc(row, func(a Action) bool { return a.Type.isCommunication() })
		if len(actions) < len(row) {
			s.table.Ranks[r] = slices.Clone(actions)
		}
	}
	return nil
}
