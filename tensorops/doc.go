// Package tensorops defines what a stage computes with: tensors, devices, and lists of operations.
//
// # How to use it
//
// A [Device] has Streams. A [Stream] owns a pool of memory and executes each [List] in the order of
// submission, asynchronously. Work is first recorded and then submitted as a whole:
//
//	l := stream.NewList()
//	y := l.Alloc(tensorops.Float32, rows, cols)
//	l.MatMul(y, x, w, tensorops.MatMulOpts{TransB: true})
//	l.GELU(z, y)
//	l.Free(y)                            // later operations may reuse the memory
//	stream.Submit(l, func(err error) {}) // called by the stream on completion
//
// Recording checks every shape and computes nothing. The List keeps the first error, reports it on
// completion, and ignores everything recorded after it. A list is data: a device may run it at
// once, split it over cores, or capture it as a graph.
//
// # Ownership
//
// A [Tensor] is a view of a [Buffer], and a Buffer has one owner. List.Free frees the buffer in
// stream order. If the buffer is from the stream's own pool, a later operation of the same stream
// may get its memory at once, since the operations of a stream run in the order of recording. A
// buffer of another pool is returned when the list has completed. A tensor may be handed to another
// stream, together with its buffer, after its list has completed. Freeing a buffer twice is a bug
// in the program and panics.
//
// A pool outlives its stream, since others may hold its buffers. Closing its [Arena] frees all of
// its memory, including buffers in use.
//
// # Exactness
//
// The result of an operation depends only on the shapes and values of its operands and on the
// device's kernel path. It never depends on the number of threads, on what else runs, or on memory
// addresses. Sums are split by shape. Random numbers (dropout) are a function of a key and of the
// element's global index.
//
// # Types
//
// Activations and their gradients may be float32 or bfloat16, independently for each operand of an
// operation, unless the operation says otherwise. So may the weights of products and embeddings.
// Statistics, biases, the weights of norms, gradients of weights and the optimizer state are
// float32; reported sums are float64. A result in a bfloat16 tensor is computed in float32 and
// rounded once.
//
// # Dimensions
//
// The letters are the same everywhere: B sequences in a microbatch, T positions in a sequence, N =
// B·T rows, C channels, H heads, D channels of a head, V vocabulary, M×N×K the sizes of a matrix
// product.
//
// The package must not know models, layers, schedules or actors. The devices are in subfolders:
// cpu; cuda; and ref, the slow and readable float64 oracle. Package optest holds the table of cases
// that every device must pass.
package tensorops
