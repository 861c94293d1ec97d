package gorgonia

// Limits of what is kept and of what is taken on.
const (
	// LimitIdle bounds the graphs of one layer that are kept for microbatches to come. It
	// is above what a schedule has in flight on a stage; beyond it the graphs that were
	// used longest ago are dropped, which matters where shapes differ a lot.
	LimitIdle = 64

	// LimitNodes bounds the nodes of a graph, gradients included.
	LimitNodes = 1 << 17

	// LimitShapes bounds the combinations of input shapes whose graphs are compared with
	// each other (see ErrGraph).
	LimitShapes = 1 << 12
)
