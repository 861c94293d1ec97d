package ui

import (
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// curves are the figures of a run by their names, at any zoom: a *history.History of its file, or
// what is kept of a run whose file is elsewhere.
type curves interface {
	// Refresh takes up what has come since.
	Refresh() error
	Names() []string
	Series(name string, by history.Axis, from, to float64, buckets int) []history.Bucket
	Last() (telemetry.Record, bool)
	Len() int
}
