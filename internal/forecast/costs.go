package forecast

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
)

// ErrCosts: the layer costs cannot be used for a prediction.
var ErrCosts = errors.New("layer costs")

// LayerCost is the time of the passes of one layer for a microbatch, in milliseconds.
type LayerCost struct {
	ForwardMS    float64 `json:"forward_ms"`
	InputGradMS  float64 `json:"input_grad_ms"`
	WeightGradMS float64 `json:"weight_grad_ms"`
	BackwardMS   float64 `json:"backward_ms"` // both gradients in one pass
}

func (c LayerCost) of(t scheduler.Type) float64 {
	switch t {
	case scheduler.F:
		return c.ForwardMS
	case scheduler.I:
		return c.InputGradMS
	case scheduler.W:
		return c.WeightGradMS
	}
	return c.BackwardMS
}

// BatchCosts are the costs of a model's layers for one size of a microbatch.
type BatchCosts struct {
	Microbatch int                  `json:"microbatch"` // sequences
	Layers     map[string]LayerCost `json:"layers"`     // by symbol: E, t, m, L
}

// of returns the cost of a pass, in milliseconds.
func (b BatchCosts) of(s scheduler.Symbol, t scheduler.Type) float64 {
	return b.Layers[string(rune(s))].of(t)
}

// Costs are the times of a model's parts on one device. They are measured, or read from
// a file of an earlier measurement.
type Costs struct {
	Kernels string `json:"kernels"`
	DType   string `json:"dtype"`
	Threads int    `json:"threads"`
	Context int    `json:"context"` // positions of a sequence
	Hidden  int    `json:"hidden"`
	// Tensor and ContextRanks are the sizes of the groups of the measured rank, which did not wait for the other
	// members; 0 or 1: it had whole layers and sequences.
	Tensor       int  `json:"tensor,omitempty"`
	Sequence     bool `json:"sequence,omitempty"` // see parallel.sequence
	ContextRanks int  `json:"context_ranks,omitempty"`
	// Shrunk is how many times narrower the measured layers were, if whole ones do not fit or take too long.
	// Their times are scaled by the ratio of the operations. 0: they had their full width.
	Shrunk int `json:"shrunk,omitempty"`
	// Batches are the measured sizes of microbatches.
	Batches []BatchCosts `json:"batches"`
	// UpdateNS is the time of the norm and the update of one weight, in nanoseconds.
	UpdateNS float64 `json:"update_ns"`
	// AddNS is the time to add a byte of a rank's contribution to a sum over ranks, in nanoseconds; 0: not known.
	AddNS float64 `json:"add_ns,omitempty"`
	// Shares[n-1] is the speed of each of n actions that run on the device at the same time,
	// relative to one action alone.
	Shares []float64 `json:"shares"`
}

// Batch returns the costs for a size of microbatch.
func (c *Costs) Batch(sequences int) (BatchCosts, error) {
	var sizes []int
	for _, b := range c.Batches {
		if b.Microbatch == sequences {
			return b, nil
		}
		sizes = append(sizes, b.Microbatch)
	}
	return BatchCosts{}, fmt.Errorf("%w: there are none for microbatches of %d sequences, only for %d; measure that size, or change batch.microbatch", ErrCosts, sequences, sizes)
}

// LayerMS returns the time of a layer's forward and backward pass for the first size of microbatch, in milliseconds.
func (c *Costs) LayerMS() float64 {
	if len(c.Batches) == 0 {
		return 0
	}
	return c.Batches[0].of(scheduler.SymbolLayer, scheduler.F) + c.Batches[0].of(scheduler.SymbolLayer, scheduler.B)
}

// Share implements scheduler.Machine. For more actions than were measured, the total speed
// stays the same.
func (c *Costs) Share(running int) float64 {
	k := len(c.Shares)
	if running <= k {
		return c.Shares[running-1]
	}
	return c.Shares[k-1] * float64(k) / float64(running)
}

// MaxCostsBytes is the largest size of a file of costs.
const MaxCostsBytes = 1 << 20

// ReadCosts reads Costs that json.Marshal has written.
func ReadCosts(text []byte) (*Costs, error) {
	if len(text) > MaxCostsBytes {
		return nil, fmt.Errorf("%w: the file has more than %d bytes, the limit", ErrCosts, MaxCostsBytes)
	}
	c := &Costs{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCosts, err)
	}
	return c, c.check()
}

func (c *Costs) check() error {
	if len(c.Batches) == 0 || len(c.Shares) == 0 {
		return fmt.Errorf(`%w: there are %d "batches" and %d "shares", but each must have at least one`, ErrCosts, len(c.Batches), len(c.Shares))
	}
	number := func(what string, v, least float64) error {
		if !(v >= least) || math.IsInf(v, 1) {
			return fmt.Errorf("%w: %s is %v, but must be a finite number, at least %v", ErrCosts, what, v, least)
		}
		return nil
	}
	for _, name := range []string{c.Kernels, c.DType} {
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("%w: %q is not a valid name of kernels or of a number type", ErrCosts, name)
		}
	}
	errs := []error{number("update_ns", c.UpdateNS, 0), number("add_ns", c.AddNS, 0), number("tensor", float64(c.Tensor), 0),
		number("context_ranks", float64(c.ContextRanks), 0), number("shrunk", float64(c.Shrunk), 0)}
	for n, s := range c.Shares {
		errs = append(errs, number(fmt.Sprintf("shares[%d]", n), s, 1e-9))
	}
	for _, b := range c.Batches {
		at := fmt.Sprintf("microbatch %d: ", b.Microbatch)
		errs = append(errs, number(at+"the size", float64(b.Microbatch), 1))
		for _, s := range []string{"E", "t", "L"} {
			if _, ok := b.Layers[s]; !ok {
				errs = append(errs, fmt.Errorf("%w: %slayer %s is missing", ErrCosts, at, s))
			}
		}
		for s, l := range b.Layers {
			for t := scheduler.F; t <= scheduler.B; t++ {
				errs = append(errs, number(fmt.Sprintf("%s%v of layer %q", at, t, s), l.of(t), 0))
			}
		}
		if l := b.Layers["t"]; l.BackwardMS+l.ForwardMS == 0 {
			errs = append(errs, fmt.Errorf("%w: %slayer t takes no time", ErrCosts, at))
		}
	}
	return errors.Join(errs...)
}

// divided reports whether the costs are those of a part of the layers.
func (c *Costs) divided() bool { return c.Tensor > 1 || c.ContextRanks > 1 }

// fitsGroups checks that the costs are those of a rank of a stage's groups.
func (c *Costs) fitsGroups(b *plan.Plan, stage int) error {
	g := b.Grid()
	tensor, context, sequence := g.TensorSize(stage), g.Size(grid.Context), b.Config().Parallel.Sequence
	if !c.divided() || max(1, c.Tensor) == tensor && max(1, c.ContextRanks) == context && (c.Sequence == sequence || tensor == 1) {
		return nil
	}
	return fmt.Errorf("%w: they belong to tensor groups of %d and context groups of %d ranks (sequence: %v), but stage %d has groups of %d and %d (sequence: %v); measure them again for this grid", ErrCosts,
		max(1, c.Tensor), max(1, c.ContextRanks), c.Sequence, stage, tensor, context, sequence)
}

// fits checks that the costs are those of a model's sizes.
func (c *Costs) fits(context, hidden int) error {
	if c.Context != context || c.Hidden != hidden {
		return fmt.Errorf("%w: they belong to a model with context %d and hidden %d, but the configuration has %d and %d; measure them again", ErrCosts, c.Context, c.Hidden,
			context, hidden)
	}
	return nil
}
