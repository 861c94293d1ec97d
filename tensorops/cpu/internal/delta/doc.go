// Package delta computes the gated delta rule of one head on one core, and its gradient, in chunks of
// positions: tensorops.List.GatedDelta and GatedDeltaGrad have the formulas.
//
// Everything of a chunk is float32 and comes from products of package gemm and loops of package vec. A
// chunk has Chunk positions, the last one of a sequence those that are left. Sums within a product are as
// in gemm, and the positions of a chunk are solved for in ascending order. So bits depend on the sizes
// alone, and are those of the kernel path. A chunk of one position, as in generation, takes a step of the
// recurrence.
//
// The logarithms of decays are added up in float64 within a chunk. Only their differences, which are not
// positive, become exponentials.
//
// The gradient keeps the state before each chunk of the head under way, and computes it again for each
// head: Positions/Chunk·KeyWidth·ValueWidth numbers for a core.
//
// It knows no tensors, and splits nothing over cores.
package delta
