package scheduler

import "strings"

// OutOfOrder names the kinds of passes that add to a gradient and that some chunk does not run in
// ascending microbatch order. A floating-point sum depends on the order of its terms. So training
// with such a table is correct, but its last bits differ from those of every other schedule. The
// zero value means that all passes are in order and the run is bit-identical to training without a
// pipeline.
type OutOfOrder struct {
	// WeightGrads: the W or B actions, which add the weight gradients of their chunk.
	WeightGrads bool
	// LossForwards: the F actions of the last chunk. They add the weight gradient of a language
	// model's head, which is computed together with the loss.
	LossForwards bool
	// InputGrads: the I actions. They add the weight gradients of layers that compute both
	// gradients at once.
	InputGrads bool
}

// Any reports whether any passes are out of order.
func (o OutOfOrder) Any() bool { return o != OutOfOrder{} }

// String names the passes, such as "weight gradients and forwards of the last chunk".
func (o OutOfOrder) String() string {
	var names []string
	for _, p := range []struct {
		is   bool
		name string
	}{
		{o.WeightGrads, "weight gradients"},
		{o.LossForwards, "forwards of the last chunk"},
		{o.InputGrads, "input gradients"},
	} {
		if p.is {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, " and ")
}

// orderCheck finds the passes that are out of order. A forward-only table adds to no gradient.
type orderCheck struct {
	found    OutOfOrder
	lastLoss int32   // microbatch of the last chunk's latest F
	weights  []int32 // by chunk, the microbatch of the latest W or B
	inputs   []int32 // by chunk, the microbatch of the latest I or B
	split    []bool  // by chunk: it has had an I
}

func newOrderCheck(chunks int) *orderCheck {
	return &orderCheck{weights: make([]int32, chunks), inputs: make([]int32, chunks), split: make([]bool, chunks)}
}

// add takes the next action of a rank.
func (c *orderCheck) add(a Action) {
	m := a.Microbatch
	if a.Type == F {
		if int(a.Chunk) == len(c.weights)-1 {
			c.found.LossForwards = c.found.LossForwards || m < c.lastLoss
			c.lastLoss = m
		}
		return
	}
	if stepsOf[a.Type]&stepW != 0 {
		c.found.WeightGrads = c.found.WeightGrads || m < c.weights[a.Chunk]
		c.weights[a.Chunk] = m
	}
	if stepsOf[a.Type]&stepI != 0 {
		// Where a chunk has no I, its B are in WeightGrads.
		c.split[a.Chunk] = c.split[a.Chunk] || a.Type == I
		c.found.InputGrads = c.found.InputGrads || c.split[a.Chunk] && m < c.inputs[a.Chunk]
		c.inputs[a.Chunk] = m
	}
}
