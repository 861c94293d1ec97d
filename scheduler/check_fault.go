package scheduler

import (
	"fmt"
	"strings"
)

// fault is an error that a check finds in a table, with its place. A table names the place by rank;
// the reader of a file names it by row and column.
type fault struct {
	table   *Table
	kind    error // an Err of this package
	at      place // of the action that the error is about
	text    string
	missing string // the action that should stand at the place, before the one that does
	other   *place // place of another action on the same rank, with which the text ends
	cycle   []wait // of a deadlock
}

// wait says that the action at one place needs the action at another.
type wait struct {
	at     place
	text   string
	needed place
}

// place is a cell of the table.
type place struct{ rank, position int }

func (f *fault) Unwrap() error { return f.kind }

func (f *fault) Error() string {
	text := f.text
	if f.other != nil {
		text = fmt.Sprintf("%v on rank %d %s", f.subject(), f.at.rank, text)
	}
	text += f.waits(func(w wait) string {
		return fmt.Sprintf("rank %d: %s on rank %d", w.at.rank, w.text, w.needed.rank)
	})
	return fmt.Sprintf("%v: %s\n%s", f.kind, text, f.table.grid(f.at.rank, f.at.position, f.missing))
}

func (f *fault) subject() Action { return f.table.Ranks[f.at.rank][f.at.position] }

// cycleShown limits how many waits of a deadlock an error lists.
const cycleShown = 8

// waits lists a deadlock's cycle, one line for each wait.
func (f *fault) waits(line func(wait) string) string {
	var text strings.Builder
	for i, w := range f.cycle {
		if i == cycleShown {
			fmt.Fprintf(&text, "\n  and so on over %d more ranks", len(f.cycle)-cycleShown)
			break
		}
		text.WriteString("\n  " + line(w))
	}
	return text.String()
}
