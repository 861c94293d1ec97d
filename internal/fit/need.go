package fit

import (
	"math"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Need is the memory that a run is expected to take, in bytes.
type Need struct {
	Least   int64 // weights, gradients and the optimizer's state alone
	Tensors int64
	Rest    int64 // all else: see restOf
}

// Bytes is all of it.
func (n Need) Bytes() int64 { return n.Tensors + n.Rest }

const (
	// restBytes is what a process takes beside tensors: the program, the tokenizer, packed operands of products and buffers.
	restBytes = 192 << 20
	// restShare is the same as a share of the tensors: rounding to pages, and pieces that are kept for reuse.
	restShare = 0.05
	// dataShare is how many bytes of memory a byte of the data takes: ids of 4 bytes for about 4 bytes of text, and their copies
	// while they are read.
	dataShare = 2
)

// restOf is the memory of a run beside its tensors.
func restOf(tensors, data int64) int64 {
	return restBytes + int64(math.Ceil(restShare*float64(tensors))) + dataShare*data
}

// tensorsIn is how many bytes of tensors fit into free memory: the inverse of restOf.
func tensorsIn(free, data int64) int64 {
	return int64(float64(free-restBytes-dataShare*data) / (1 + restShare))
}

// needOf forecasts the memory of a configuration.
func needOf(c *config.Config, data int64) (n Need, err error) {
	p, err := plan.Resolve(c, nil)
	if err != nil {
		return n, err
	}
	if n.Least, err = p.LeastBytes(); err != nil {
		return n, err
	}
	if n.Tensors, err = p.AllTensorBytes(); err != nil {
		return n, err
	}
	n.Rest = restOf(n.Tensors, data)
	return n, nil
}
