// Package driver calls CUDA's driver, its compiler NVRTC, and its library for matrix products,
// cuBLASLt, without cgo. The libraries are opened on first use. On a machine without them the error
// says where they were searched.
//
// Its methods are the libraries' functions, with Go's types and errors. Those that need
// a context use the calling thread's: callers lock their goroutine to a thread and
// make the context current there. The package knows no tensors.
package driver
