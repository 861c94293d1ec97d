package draw

import "errors"

// The kinds of errors of this package. What a writer returned is passed on as it is.
var (
	// ErrChart: a chart's times or actions contradict each other.
	ErrChart = errors.New("malformed chart")
	// ErrTooLarge: a chart is too large for a format that is made to be looked at.
	ErrTooLarge = errors.New("too large to draw")
)
