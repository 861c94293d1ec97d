package scheduler

import "errors"

// The errors of this package. Every error that it returns wraps one of them.
var (
	// ErrSpec: the numbers of a Spec contradict each other or don't fit the schedule.
	ErrSpec = errors.New("impossible schedule")
	// ErrSyntax: the text of an action, a table or a layout can't be parsed.
	ErrSyntax = errors.New("syntax error")
	// ErrLayout: a layout doesn't fit the model or the pipeline.
	ErrLayout = errors.New("layout does not fit")

	// ErrTable: a table's sizes are impossible, or an action lies outside them.
	ErrTable = errors.New("malformed table")
	// ErrRank: an action stands on a rank that doesn't hold its chunk.
	ErrRank = errors.New("action on the wrong rank")
	// ErrDuplicate: an action occurs twice.
	ErrDuplicate = errors.New("action done twice")
	// ErrIncomplete: an action is missing.
	ErrIncomplete = errors.New("table is incomplete")
	// ErrOrder: a rank runs a backward before its forward, or a weight gradient before its input
	// gradient.
	ErrOrder = errors.New("action before one that it depends on")
	// ErrDeadlock: ranks wait for each other.
	ErrDeadlock = errors.New("table deadlocks")

	// ErrExchange: ranks that share experts exchange tokens in different orders.
	ErrExchange = errors.New("exchanges of tokens differ")
	// ErrNotation: Megatron-Core's order can't express the table.
	ErrNotation = errors.New("no order in Megatron-Core's notation")

	// ErrCosts: a cost is negative or not a number, or the credits don't match the table.
	ErrCosts = errors.New("impossible costs")
	// ErrTimes: the measured times of a step don't fit its table or are impossible.
	ErrTimes = errors.New("impossible times")
	// ErrPeriod: the steps of the table don't repeat, or computing their period would take too
	// long.
	ErrPeriod = errors.New("no period")
)

// shorten cuts a bad input to the length that an error may repeat.
func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return s[:maxQuoted] + "…"
}
