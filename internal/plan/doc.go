// Package plan resolves a configuration: the model, which rank holds which layers, the order
// of every rank's actions, the memory that they take, and whether a checkpoint has the
// weights. Nothing is trained and no data is read.
//
// The root package, the planner and the benchmarks share it. It may import what knows a part
// of the answer (config, scheduler, stages, checkpoint, device, rundir). It must not know
// actors, nor how a run goes.
package plan
