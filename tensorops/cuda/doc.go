// Package cuda computes on NVIDIA GPUs. The driver's library, and NVRTC for the
// kernels, are opened when a device is asked for; nothing of CUDA is needed to build,
// nor to run without a GPU. With the tag nocuda a build cannot open them. Where NVRTC is
// not found, the kernels are those that come with the build, as PTX.
//
// # From a list to the device
//
// A list becomes launches on a stream of its own. The kernels are CUDA C in folder
// kernels, each file compiled by NVRTC for the device at hand and kept in the user's
// folder for caches. A kernel takes one argument, a struct, which a Go struct of the same
// layout fills: see launch.
//
// One thread of the process has the device's context and launches for all streams
// (owner.go). It launches a list in batches (launchbatch.go), and each stream's own goroutine
// waits for them to complete, copies what was fetched to where it belongs, and reports
// (stream.go). Most lists are one batch. A batch ends early at a collective, which
// needs what comes before; at an operation that looks up token ids which the host has not
// looked at itself, so that nothing after it runs if one is bad (checkedids.go); and where the
// page-locked memory for copies is used up. Behind the last batch of a list the next list's first is launched at once.
//
// Operations that are kernels and nothing else make a segment (segment.go). One that comes
// again is launched as a CUDA graph (graph.go); where the driver fails to make one, kernel by
// kernel, which is counted and said (work.go). Large copies from and to the host go beside
// the kernels (copies.go).
//
// # Memory
//
// Arenas keep what is released by size class, as the host's do (arena.go). A list frees
// its tensors at recording, ahead of the launches; so scratch memory, which is taken at
// the launch, comes from an arena of its own. The lowest address is taken first, so that steps
// that do the same take the same memory. Where the GPU has no more, what no list can use any
// more goes back to the driver, and so does the scratch memory of graphs, which are made again.
// What launches take beside tensors, a dry launch tells (dry.go).
//
// # Several GPUs
//
// Each is a Device, with a thread of its own. One that has access to another's memory copies
// tensors from there (peer.go), which is asked for once for each pair. Where there is none, and on
// the way from or to the CPU, they lie in page-locked memory of the host's that all devices know
// (locked.go). Collectives go through the host.
//
// # Products
//
// Products of matrices are cuBLASLt's where it is found (blas.go, blas_product.go): in float32, in TF32 where
// the options ask for it, and in bfloat16, for which A and B are rounded into scratch memory,
// or once a step where they are packed; what is bfloat16 already is read and written where it lies, if it
// lies at multiples of 16 bytes. It is asked for an algorithm once for a shape. Where
// it is not there, or has none, the kernels here multiply (launch_linear.go). A GELU goes into a
// product where that is the rule for the GPU (gelu.go). Device.Work counts what went which way.
//
// # One launch for several operations
//
// Where an operation and the next are one to a GPU, a joiner (exec.go) carries out both: a product and the
// GELU of it, or the column sums of what it multiplies; a residual and the norm of it; a norm's gradient of its
// weights and that of its rows; all squared norms, all updates of AdamW. Layers need not know of it, and a
// residual and a norm meet whose layers don't know of each other. Whether they do changes no bit. What
// cuBLASLt joins would have others apart: one layer records both, so they always meet.
//
// # bfloat16
//
// Operands of kernels may be float32 or bfloat16, each on its own. A kernel looks at a bit of each
// (eight.cuh), or has two forms: one for float32 in all of them, and one that looks (FORMS in four.cuh). Attention on
// tensor cores reads bfloat16 and writes either (launch_attention_mma.go); elsewhere attention, and
// products by the kernels here, get copies in float32 and have what they write rounded
// (bfloat16.go).
//
// # Tests
//
// Without a GPU the device is tested against a stand-in for the driver and cuBLASLt, with
// the kernels compiled for the host: see internal/standin.
//
// The package may import tensorops, and what opens libraries. It must not know models,
// stages or actors.
package cuda
