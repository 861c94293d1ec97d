// Package process has the table of the metrics of a cluster's processes: of its coordinator, and of a worker. It is for
// processes what telemetry.Figures is for the steps of a run. A new metric needs a field of the state and a row of the
// table.
//
// The package must never know how a state is measured or exported.
package process
