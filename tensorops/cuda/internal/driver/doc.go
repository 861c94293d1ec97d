// Package driver calls CUDA's driver, NVRTC, its compiler, and cuBLASLt, its library for
// products of matrices, without cgo: the libraries are opened when somebody asks for
// them, and a machine that has none gets an error that says where they were looked for.
//
// Its methods are the libraries' functions, with Go's types and errors. Those that need
// a context use the calling thread's: callers lock their goroutine to a thread and
// make the context current there. The package knows no tensors.
package driver
