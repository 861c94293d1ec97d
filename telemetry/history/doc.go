// Package history serves the curves of a run at any zoom. It reads a metrics.jsonl of any length into memory and
// follows it while the run continues:
//
//	h, err := history.Open(fsys, "metrics.jsonl")
//	all := h.Series("loss", history.BySteps, math.Inf(-1), math.Inf(1), 800)
//	err = h.Refresh() // reads appended lines
//
// It keeps every step in memory and reduces only what it returns. Each metric is a series: the rows that have it, and
// its exact values. A pyramid of nodes above the values, each over 16 nodes of the level below, gives the minimum,
// maximum and mean of any range from a few dozen nodes.
//
// # Reading
//
// The file is split into blocks of complete lines, which all cores parse in parallel (load.go). A fast scanner parses
// lines as telemetry.Writer writes them (row.go). All other lines go to telemetry.Record, which defines the format.
// So values and errors are those of telemetry.Read.
//
// A second row of a step replaces the first one and all rows after it. A run's own file has no such rows, since a
// restart cuts it.
//
// # Memory
//
// A row takes 24 bytes and each of its values 10, or 14 if not every row has one: about 130 MB for 1,000,000 steps of
// ten metrics. Reading needs one block for each core and one more. See limits.go.
//
// The package writes no files. It must not depend on the code that draws the curves; it reads no clock.
package history
