package scheduler

import "errors"

// The kinds of errors of this package; every error it returns wraps one of
// them.
var (
	// ErrSpec: the numbers of a Spec contradict each other or the schedule.
	ErrSpec = errors.New("impossible schedule")
	// ErrSyntax: the text of an action, a table or a layout can't be read.
	ErrSyntax = errors.New("syntax error")
	// ErrLayout: a layout doesn't fit the model or the pipeline.
	ErrLayout = errors.New("layout does not fit")

	// ErrTable: a table's sizes are impossible, or an action lies outside them.
	ErrTable = errors.New("malformed table")
	// ErrRank: an action stands on a rank that doesn't hold its chunk.
	ErrRank = errors.New("action on the wrong rank")
	// ErrDuplicate: an action is done twice.
	ErrDuplicate = errors.New("action done twice")
	// ErrIncomplete: an action is missing.
	ErrIncomplete = errors.New("table is incomplete")
	// ErrOrder: a rank does a backward before its forward, or a weight gradient
	// before its input gradient.
	ErrOrder = errors.New("action before what it needs")
	// ErrDeadlock: ranks wait for each other.
	ErrDeadlock = errors.New("table deadlocks")

	// ErrNotation: Megatron-Core's order can't say what a table does.
	ErrNotation = errors.New("no order in Megatron-Core's notation")

	// ErrCosts: a cost is negative or no number, or credits don't match the
	// table.
	ErrCosts = errors.New("impossible costs")
	// ErrTimes: what was measured of a step doesn't fit its table, or is no time.
	ErrTimes = errors.New("impossible times")
	// ErrPeriod: steps of the table don't repeat, or it would take too long to tell how.
	ErrPeriod = errors.New("no period")
)

// shorten cuts a bad input to what an error may repeat of it.
func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return s[:maxQuoted] + "…"
}
