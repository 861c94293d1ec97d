package telemetry

import "fmt"

// LimitLineBytes is what a line of a metrics.jsonl stays below, its end not counted.
const LimitLineBytes = maxLineBytes

// RowError is the error about a row that is none of its file's, counted from 1.
func RowError(row int, err error) error { return fmt.Errorf("row %d: %w; %s", row, err, advice) }

// LongRowError is the error about a row of a metrics.jsonl that reaches LimitLineBytes.
func LongRowError(row int) error { return longRow(row, maxLineBytes) }

func longRow(row, most int) error {
	return fmt.Errorf("row %d has more than %d bytes; %s", row, most, advice)
}
