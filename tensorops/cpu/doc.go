// Package cpu is the Device that computes on the machine's cores: no cgo and
// nothing to install. Kernels are multi-threaded and cache-blocked; the inner
// loop of matrix products is assembly where the processor has AVX2 and FMA, and
// Go elsewhere.
//
// All streams of a device share one set of cores (cores.go): an operation is
// split into ranges that whichever core is free takes, so one busy stream uses
// all cores and many streams share them without oversubscription. How the work
// is split never changes a result: a range owns its outputs, and a sum is never
// cut by a range's border.
//
// The package may import tensorops and internal/base/rng. It must not know models,
// schedules or actors.
package cpu
