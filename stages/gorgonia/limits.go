package gorgonia

// The limits of cached graphs and of a graph's size.
const (
	// LimitIdle limits the graphs of one layer that are kept for later microbatches. It exceeds the
	// number of microbatches that a schedule has in flight on a stage. Beyond it the least recently
	// used graphs are dropped, which matters if shapes vary a lot.
	LimitIdle = 64

	// LimitNodes limits the nodes of a graph, including the gradients.
	LimitNodes = 1 << 17

	// LimitShapes limits the combinations of input shapes whose graphs are compared with each other
	// (see ErrGraph).
	LimitShapes = 1 << 12
)
