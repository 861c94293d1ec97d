// Package cuda computes on NVIDIA GPUs. It opens the driver's library, and NVRTC to compile the
// kernels, when a program asks for a device. Nothing of CUDA is needed to build Troupe, or to run it
// without a GPU. A build with the tag nocuda cannot open the libraries. Without NVRTC the device
// uses the PTX in the binary (make ptx).
//
// # From a list to the device
//
// A list becomes launches on a stream of its own. The kernels are CUDA C in the folder kernels.
// NVRTC compiles each file when a device is first opened, and the result is kept in the user's cache
// folder. A kernel takes one argument, a struct, which a Go struct of the same layout fills: see launch.
//
// One thread of the process has the device's context and launches for all streams (owner.go). It
// launches a list in batches (launchbatch.go). Each stream's own goroutine waits for a batch to
// complete, copies the fetched tensors to their places, and reports (stream.go). Most lists are one
// batch. A batch ends early
//
//   - at a collective, which needs the results before it;
//   - at an operation that looks up token ids which the host has not checked itself, so that nothing
//     after it runs if one is bad (checkedids.go);
//   - where the page-locked memory for copies is used up.
//
// After the last batch of a list the first batch of the next list is launched at once. A stage
// submits its next lists early (tensorops.Queuer), so the device waits for the host once a step: for
// the gradient's norm, which decides the update.
//
// Operations that are only kernels make a segment (segment.go). A segment that comes again, as a
// chunk's passes do, is launched as a CUDA graph (graph.go). What changes from step to step, such as
// dropout's counters, lies in device memory; addresses recur (see Memory). Where the driver fails to
// make a graph, its kernels are launched one by one, and work.go counts and reports it. Large copies
// from and to the host run beside the kernels (copies.go).
//
// # Memory
//
// Arenas keep released memory by size class, as the host's do (arena.go). A list frees its tensors
// at recording, ahead of the launches. Scratch memory is taken at the launch, so it comes from an
// arena of its own. The lowest address is taken first: steps that do the same take the same memory.
// Where the GPU has no more memory, the device returns to the driver what no list can use any more,
// and the scratch memory of graphs, which are then made again. A dry launch says what launches take
// beside tensors (dry.go).
//
// # Several GPUs
//
// Each GPU is a Device with a thread of its own. A GPU that has access to another's memory copies
// tensors from there (peer.go); the access is requested once for each pair. Without access, and to
// or from the CPU, tensors cross in page-locked memory of the host, which all devices know
// (locked.go). To and from another process a tensor goes in pieces (pieces.go). Collectives go
// through the host.
//
// # Products
//
// cuBLASLt multiplies matrices where it is found (blas.go, blas_product.go): in float32, in TF32 where
// the options say so, and in bfloat16. For bfloat16, float32 operands are rounded into scratch memory, or
// once a step where they are packed: the optimizer's kernel writes a bfloat16 copy of each weight that
// products read. A bfloat16 operand is used where it lies if its rows begin at multiples of 16 bytes;
// the head's copy is padded for that (package stages, padding.go). The device asks for an algorithm
// once a shape. Without cuBLASLt, or where it has no algorithm, the kernels here multiply
// (launch_linear.go). A GELU goes into a product where the GPU's rule says so (gelu.go). Device.Work
// counts which way each product went.
//
// # One launch for several operations
//
// A joiner (exec.go) runs two consecutive operations in one launch:
//
//   - a product and the GELU of its result, or the column sums of its operand;
//   - a residual and the norm of it;
//   - a norm's gradient of its weights and that of its rows;
//   - all squared norms, and all updates of AdamW.
//
// Layers need not know of this: a residual and a norm meet although neither layer knows the other.
// Joining changes no bit, with one exception. cuBLASLt's joined operations have other bits, so a single
// layer records both and they always meet.
//
// # Attention
//
// Attention on bfloat16 uses the tensor cores (kernels/attention_mma.cuh). In the gradient a block of
// threads owns a tile of keys. Blocks add to the gradient of the queries in a fixed order
// (kernels/turns.cuh), so every run has the same bits. Heads of more than 128 channels, and a soft cap with
// dropout, take the kernels for float32.
//
// In a context group queries attend to one block of keys after another: attention_onto adds what each block makes to what the others
// have made. Keys that come before all queries take the tensor cores if they fill whole tiles and no window hides some.
//
// Where documents share a sequence, attention_starts finds which tiles of queries and of keys meet, and forms of the
// kernels that are called _starts compute those. Other runs load none of these.
//
// # Experts
//
// How many rows each expert has is known to the device alone. A kernel finds the tiles of rows of each expert, and the grid of the
// product has room for the worst case (launch_grouped.go). A tile is multiplied as those of products by the kernels here, so a row is
// bit-identical to that of such a product. Routers compute in float64, and sort the pairs of a token and an expert by counting.
// Kernels check the places, experts and offsets that they read (checkedroutes.go).
//
// Between ranks that share experts, the host copies only the rows that travel. It needs their number, so it keeps the table of a
// layer's rows when the gathered table passes through it (knowntables.go): an exchange then waits for the device once, not twice.
//
// # bfloat16
//
// Each operand of a kernel is float32 or bfloat16. A kernel looks at one bit for each operand
// (eight.cuh), or has two forms: one where all are float32, and one that looks (FORMS in four.cuh).
// Attention on tensor cores reads bfloat16 and writes either type (launch_attention_mma.go). Elsewhere
// attention, and products by the kernels here, work on float32 copies, and their results are rounded
// (bfloat16.go).
//
// # Tests
//
// Tests without a GPU build the same kernels for the host and run them on a stand-in for the driver and
// cuBLASLt: see internal/standin. The table of cases of every device and whole runs go through it.
// internal/count counts there what a step of GPT-2 124M moves, computes and waits for, kernel by
// kernel (make count-cuda).
//
// The package must not know models, stages or actors.
package cuda
