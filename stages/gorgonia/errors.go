package gorgonia

import "errors"

var (
	// ErrGraph: the Build function failed, or its graph does not fit the layer.
	ErrGraph = errors.New("gorgonia graph")

	// ErrRefused: the graph has an operation that Gorgonia computes wrongly or not reproducibly.
	// Refused lists them.
	ErrRefused = errors.New("gorgonia operation refused")

	// ErrInput: an input, a parameter or an output gradient does not fit the graph.
	ErrInput = errors.New("gorgonia input")
)
