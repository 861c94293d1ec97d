package telemetry

import "fmt"

// LimitLineBytes bounds a line of a metrics.jsonl without its line break: a line must be shorter.
const LimitLineBytes = maxLineBytes

// RowError returns the error for an invalid row, counted from 1.
func RowError(row int, err error) error { return fmt.Errorf("row %d: %w; %s", row, err, advice) }

// LongRowError returns the error for a row of a metrics.jsonl that reaches LimitLineBytes.
func LongRowError(row int) error { return longRow(row, maxLineBytes) }

func longRow(row, most int) error {
	return fmt.Errorf("row %d is longer than %d bytes; %s", row, most, advice)
}
