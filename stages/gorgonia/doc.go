// Package gorgonia turns a graph of Gorgonia (gorgonia.org/gorgonia) into a layer like any other.
// The user writes a [Build]: a function that builds the graph from given input nodes and parameter
// nodes.
//
// # How it runs
//
// Operations may have state, so each microbatch in flight has its own graph from a pool (model.go).
// The package runs a graph's operations itself, in the order in which they were made, on the
// caller's goroutine (program.go, instance.go). The layer's forward runs the operations of the
// outputs; the backward runs those of the gradients, once the outputs' gradients have arrived.
// Gorgonia's own machine can't be used: it cannot stop between the two, it locks a thread, and it
// runs operations on its own goroutine, where a panic ends the process. The results are
// bit-identical to the machine's.
//
// The operations of the gradients are Gorgonia's symbolic ones (backward.go). The gradients of
// inputs and of parameters are computed together: the layer has no separate pass for weight
// gradients. A product that is a parameter's gradient is added to the gradient in place.
//
// All graphs read parameters and inputs in place, at the same time. Nothing writes to them. A
// graph's results stay in its memory until its next use; gradients stay until the next backward
// pass of the same shapes. Copy them to keep them longer.
//
// # Refused operations
//
// Some of Gorgonia's operations compute a wrong gradient or a wrong result. The results of others
// depend on the clock or on earlier microbatches. ops_test.go and axes_test.go show each of them. A
// graph that has one is refused when it is built, with the reason and a replacement; see [Refused]
// (refuse.go).
//
// One mistake cannot be detected in a graph: Gorgonia takes SoftMax and LogSoftMax of the same node
// for the same operation, and returns the one that was built first. If you need both, use Exp of
// LogSoftMax.
//
// # Bits
//
// The same inputs and weights give the same bits, whichever graph computes them and whatever else
// is in flight. Gorgonia's matrix products are the engine's ([UseEngineBLAS]), on one core: stages
// and ranks keep the cores busy, not one graph.
//
// No package of the engine imports this one, so a program that doesn't use it doesn't link
// Gorgonia.
package gorgonia
