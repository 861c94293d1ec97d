// Package plan resolves a configuration: the model, which rank holds which layers, the order
// of every rank's actions, the memory that they take, and whether a checkpoint has the
// weights. Nothing is trained and no data is read.
//
// # Dry runs
//
// Memory is found by recording: a stage records its whole row of the table on a stream that executes nothing,
// and its pool counts (memory.go); on a GPU the kernels' scratch memory is added (scratch.go). With
// parallel.zero = 2 or 3 the dry runs with and without it decide what ranks share (zero.go). In a grid CheckWorld
// records which collectives each rank will submit, and package world proves that the step ends (world.go).
//
// # Hosts
//
// Hosts is what a run asks of workers (hosts.go). It names no network: package cluster implements it. So a service
// that trains on one machine links no gRPC. Digest proves that coordinator and worker resolved the
// same configuration to the same plan.
//
// The root package, forecast and the benchmarks share it. The package must not know
// how a run goes.
package plan
