// Package history answers for the curves of a run at any zoom. It reads a metrics.jsonl of any
// length into memory, fast, and follows it while the run goes on:
//
//	h, err := history.Open(fsys, "metrics.jsonl")
//	all := h.Series("loss", history.BySteps, math.Inf(-1), math.Inf(1), 800)
//	err = h.Refresh() // what was appended since
//
// The file stays whole, a line for every step; what is derived from it thins out. Each figure is a
// series: the rows that have it, and its values, to the bit. Above the values lies a pyramid of
// nodes, each over sixteen of the one below, so that the least, the greatest and the mean of any
// run of values take a few dozen nodes.
//
// # Reading
//
// The file is cut into blocks of whole lines, which all cores read at the same time (load.go). A
// line as telemetry.Writer writes it is taken apart by a scanner that knows the keys (row.go);
// whatever differs from that is left to telemetry.Record, which alone says what a record is. So
// the figures are those of telemetry.Read, and so are the errors.
//
// A row of a step that is there already takes the place of that one and of all behind it, as the
// later trace of a step counts. A run's own file has none: going back cuts it.
//
// # Memory
//
// A row takes 24 bytes, and each of its figures 10, or 14 where not every row has one: some 130 MB for
// 1,000,000 steps of ten figures. While the file is read, a block for each core and one more come on top. See limits.go.
//
// Nothing is written, beside the run or elsewhere. The package must never know who draws the
// curves; it reads no clock.
package history
