// Package tensorops is what a stage computes with: tensors, devices, and lists
// of operations.
//
// # How to use it
//
// A Device has Streams. A Stream owns a pool of memory and executes Lists, one
// after another, in its own time. Work is recorded first and submitted at once:
//
//	l := stream.NewList()
//	y := l.Alloc(tensorops.Float32, rows, cols)
//	l.MatMul(y, x, w, tensorops.MatMulOpts{TransB: true})
//	l.GELU(z, y)
//	l.Free(y)                            // reusable by what is recorded after
//	stream.Submit(l, func(err error) {}) // completion, from the stream
//
// Recording checks every shape and computes nothing. The first error sticks to
// the List and is reported by Submit's completion; what is recorded after it is
// ignored. A list is data: a device may run it at once, split it over cores, or
// capture it as a graph.
//
// # Ownership
//
// A Tensor is a view of a Buffer, and a Buffer has one owner. List.Free gives
// the buffer back in stream order: a buffer of the stream's own pool may be
// handed out again to a later operation of the same stream at once, since
// operations of a stream run in the order of recording; a buffer of another
// pool goes home when the list has completed. A tensor handed to another stream
// is handed over after its list has completed, and its buffer with it. Freeing
// a buffer twice is a bug in the program and panics.
//
// A pool outlives its stream, since others may hold what it has handed out. When its Arena
// is closed it takes all back, whoever holds it.
//
// # Exactness
//
// Every operation's result depends on the shapes and values of its operands and
// on the device's kernel path alone: never on the number of threads, on what
// else runs, or on where memory lies. Sums are split by shape. Random numbers
// (dropout) are a function of a key and of the element's global index.
//
// # Types
//
// What a layer makes and passes on (activations and their gradients) may be float32 or
// bfloat16, each operand of an operation on its own, wherever an operation does not say
// otherwise; so may the weights of products and embeddings. Statistics, biases, the weights of
// norms, gradients of weights and the optimizer's state are float32, sums that are reported
// float64. What is written into a bfloat16 tensor is computed in float32 and rounded once.
//
// # Dimensions
//
// One legend everywhere: B sequences in a microbatch, T positions in a
// sequence, N = B·T rows, C channels, H heads, D channels of a head, V
// vocabulary, M×N×K the sizes of a matrix product.
//
// The package must not know models, layers, schedules or actors. The devices are in its folders:
// cpu, and ref, the slow and readable float64 oracle; optest holds the one table of cases that
// every device runs.
package tensorops
