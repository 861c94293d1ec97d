package draw

import "errors"

// The errors of this package. Errors of writers are returned unchanged.
var (
	// ErrChart means that the times or actions of a chart are not consistent.
	ErrChart = errors.New("malformed chart")
	// ErrTooLarge means that a chart is too large for a format for people.
	ErrTooLarge = errors.New("too large to draw")
)
