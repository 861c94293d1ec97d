// Package plan resolves a configuration: the model, the layers of each rank, the order
// of every rank's actions, the memory that they need, and whether a checkpoint has the
// weights. It trains nothing and reads no data.
//
// # Dry runs
//
// The plan finds the memory by recording: a stage records its whole row of the table on a stream that executes
// nothing, and the stream's pool counts the bytes (memory.go). On a GPU the scratch memory of the kernels is added
// (scratch.go). With parallel.zero = 2 or 3, dry runs with and without it decide what replicas share (zero.go). In a
// grid, CheckWorld records which collectives each rank will submit, and package world proves that the step ends
// (world.go).
//
// # Hosts
//
// Hosts is what a run requests from workers (hosts.go). It names no network: package cluster implements it, so a
// service that trains on one machine links no gRPC. With Digest, coordinator and worker compare the plans that
// they resolved from the same configuration.
//
// The root package, forecast and the benchmarks share the package. It must not know
// how a run proceeds.
package plan
