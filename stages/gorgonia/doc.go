// Package gorgonia makes a graph of Gorgonia's (gorgonia.org/gorgonia) a layer like any
// other. The user writes a Build: a function that builds the graph for given input nodes
// and parameter nodes.
//
// # How it runs
//
// Each microbatch in flight has a graph of its own, taken from a pool: operations may have
// state. The package runs a graph's operations itself, in the order in which they were
// made, on the goroutine of whoever calls: first those that the outputs need, and those of
// the gradients when the outputs' gradients have come. Gorgonia's own machine cannot stop
// between the two, locks a thread, and runs operations on a goroutine of its own, where a
// panic ends the process. Results have the machine's bits.
//
// The gradients' operations are Gorgonia's symbolic ones. Those of inputs and of parameters
// come together: a layer's backward is whole.
//
// Parameters and inputs are read where they lie, by all graphs at the same time. Nothing
// writes to them. A graph's results stay in its memory until its next use, gradients until
// the next backward pass of the same shapes: whoever needs them longer copies them.
//
// # What is refused
//
// Some of Gorgonia's operations compute a wrong gradient, or a wrong result, or one that
// depends on the clock or on earlier microbatches. A graph that has one is refused when it
// is built, with the reason and what to write instead: see Refused.
//
// One mistake cannot be seen in a graph: Gorgonia takes SoftMax and LogSoftMax of the same
// node for the same, and gives the one that was asked for first. Who needs both takes Exp
// of LogSoftMax.
//
// # Bits
//
// The same inputs and weights give the same bits, whichever graph computes them, beside
// whatever else is in flight. Gorgonia's matrix products are the engine's (UseEngineBLAS),
// on one core: cores are kept busy by stages and ranks, not by one graph.
//
// The package may import tensorops, tensorops/cpu and stages. Nothing but programs that
// use it imports it, so that others don't carry Gorgonia.
package gorgonia
