// Package gorgonia makes a graph of Gorgonia's (gorgonia.org/gorgonia) a layer like any
// other. The user writes a Build: a function that builds the graph for given input nodes
// and parameter nodes.
//
// # How it runs
//
// Operations may have state, so each microbatch in flight has a graph of its own from a pool
// (model.go). The package runs a graph's operations itself, in the order in which they were
// made, on the caller's goroutine (program.go, instance.go): those of the outputs in the
// layer's forward, those of the gradients when the outputs' gradients have come. Gorgonia's
// own machine cannot stop between the two, locks a thread, and runs operations on a goroutine
// of its own, where a panic ends the process. Results have the machine's bits.
//
// The gradients' operations are Gorgonia's symbolic ones (backward.go). Gradients of inputs
// and of parameters come together: the layer has no separate weight gradient pass. A product
// that is a parameter's gradient is added to the gradient in place.
//
// All graphs read parameters and inputs in place, at the same time. Nothing writes to them. A
// graph's results stay in its memory until its next use, gradients until the next backward
// pass of the same shapes. Copy them to keep them longer.
//
// # What is refused
//
// Some of Gorgonia's operations compute a wrong gradient or result, or one that depends on the
// clock or on earlier microbatches; ops_test.go and axes_test.go show each. A graph that has
// one is refused when it is built, with the reason and a replacement: see Refused (refuse.go).
//
// One mistake cannot be seen in a graph: Gorgonia takes SoftMax and LogSoftMax of the same
// node for the same operation, and returns the one that was built first. If you need both, use
// Exp of LogSoftMax.
//
// # Bits
//
// The same inputs and weights give the same bits, whichever graph computes them and whatever
// else is in flight. Gorgonia's matrix products are the engine's (UseEngineBLAS), on one core:
// stages and ranks keep the cores busy, not one graph.
//
// No package of the engine imports it, so that programs that don't use it don't carry Gorgonia.
package gorgonia
