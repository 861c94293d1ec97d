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

// ErrCosts: costs are not what a prediction needs.
var ErrCosts = errors.New("layer costs")

// LayerCost is what the passes of one layer take for a microbatch.
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

// BatchCosts are the costs of a model's layers at one size of a microbatch.
type BatchCosts struct {
	Microbatch int                  `json:"microbatch"` // sequences
	Layers     map[string]LayerCost `json:"layers"`     // by symbol: E, t, m, L
}

// of is the cost of a pass, in milliseconds.
func (b BatchCosts) of(s scheduler.Symbol, t scheduler.Type) float64 {
	return b.Layers[string(rune(s))].of(t)
}

// Costs say what a model's parts take on one device. They are measured, or read from
// where they were measured before.
type Costs struct {
	Kernels string `json:"kernels"`
	DType   string `json:"dtype"`
	Threads int    `json:"threads"`
	Context int    `json:"context"` // positions of a sequence
	Hidden  int    `json:"hidden"`
	// The layers' costs are those of a rank that shares its layers with as many others, and its sequences, without
	// waiting for them; 0 or 1: of whole ones.
	Tensor       int  `json:"tensor,omitempty"`
	Sequence     bool `json:"sequence,omitempty"` // see parallel.sequence
	ContextRanks int  `json:"context_ranks,omitempty"`
	// Shrunk is how many times narrower the layers were that were measured, where whole ones don't fit or take too long;
	// their times are multiplied by the ratio of their operations. 0: they were whole.
	Shrunk int `json:"shrunk,omitempty"`
	// Batches are the sizes of microbatches that were measured.
	Batches []BatchCosts `json:"batches"`
	// UpdateNS is what the norm and the update of one weight take, in nanoseconds.
	UpdateNS float64 `json:"update_ns"`
	// AddNS is what a byte of a rank's contribution to a sum of all ranks takes to add, in nanoseconds; 0: not known.
	AddNS float64 `json:"add_ns,omitempty"`
	// Shares[n-1] is the speed of each of n actions that run at a time on the device,
	// as a share of that of one alone.
	Shares []float64 `json:"shares"`
}

// Batch returns the costs at a size of microbatch.
func (c *Costs) Batch(sequences int) (BatchCosts, error) {
	var sizes []int
	for _, b := range c.Batches {
		if b.Microbatch == sequences {
			return b, nil
		}
		sizes = append(sizes, b.Microbatch)
	}
	return BatchCosts{}, fmt.Errorf("%w: none for microbatches of %d sequences, there are some for %d", ErrCosts, sequences, sizes)
}

// LayerMS is what a layer takes there and back at the first size of microbatch.
func (c *Costs) LayerMS() float64 {
	if len(c.Batches) == 0 {
		return 0
	}
	return c.Batches[0].of(scheduler.SymbolLayer, scheduler.F) + c.Batches[0].of(scheduler.SymbolLayer, scheduler.B)
}

// Share is scheduler.Machine's. Beyond the numbers that were measured the speed of all
// together stays the same.
func (c *Costs) Share(running int) float64 {
	k := len(c.Shares)
	if running <= k {
		return c.Shares[running-1]
	}
	return c.Shares[k-1] * float64(k) / float64(running)
}

// MaxCostsBytes is the longest file of costs that is read.
const MaxCostsBytes = 1 << 20

// ReadCosts reads what json.Marshal writes of Costs.
func ReadCosts(text []byte) (*Costs, error) {
	if len(text) > MaxCostsBytes {
		return nil, fmt.Errorf("%w: the file has more than %d bytes", ErrCosts, MaxCostsBytes)
	}
	c := &Costs{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCosts, err)
	}
	return c, c.check()
}

func (c *Costs) check() error {
	if len(c.Batches) == 0 || len(c.Shares) == 0 {
		return fmt.Errorf(`%w: there are %d "batches" and %d "shares", want at least one of each`, ErrCosts, len(c.Batches), len(c.Shares))
	}
	number := func(what string, v, least float64) error {
		if !(v >= least) || math.IsInf(v, 1) {
			return fmt.Errorf("%w: %s is %v, want a finite number from %v", ErrCosts, what, v, least)
		}
		return nil
	}
	for _, name := range []string{c.Kernels, c.DType} {
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("%w: %q is no name of kernels or of a type", ErrCosts, name)
		}
	}
	errs := []error{number("update_ns", c.UpdateNS, 0), number("add_ns", c.AddNS, 0), number("tensor", float64(c.Tensor), 0),
		number("context_ranks", float64(c.ContextRanks), 0), number("shrunk", float64(c.Shrunk), 0)}
	for n, s := range c.Shares {
		errs = append(errs, number(fmt.Sprintf("shares[%d]", n), s, 1e-9))
	}
	for _, b := range c.Batches {
		at := fmt.Sprintf("of microbatch %d, ", b.Microbatch)
		errs = append(errs, number(at+"the size", float64(b.Microbatch), 1))
		for _, s := range []string{"E", "t", "L"} {
			if _, ok := b.Layers[s]; !ok {
				errs = append(errs, fmt.Errorf("%w: %sthe layer %s is missing", ErrCosts, at, s))
			}
		}
		for s, l := range b.Layers {
			for t := scheduler.F; t <= scheduler.B; t++ {
				errs = append(errs, number(fmt.Sprintf("%s%v of the layer %q", at, t, s), l.of(t), 0))
			}
		}
		if l := b.Layers["t"]; l.BackwardMS+l.ForwardMS == 0 {
			errs = append(errs, fmt.Errorf("%w: %sthe layer t takes no time", ErrCosts, at))
		}
	}
	return errors.Join(errs...)
}

// divided reports whether costs are those of a rank's part of the layers.
func (c *Costs) divided() bool { return c.Tensor > 1 || c.ContextRanks > 1 }

// fitsGroups says whether costs of a part are those of a stage's ranks.
func (c *Costs) fitsGroups(b *plan.Plan, stage int) error {
	g := b.Grid()
	tensor, context, sequence := g.TensorSize(stage), g.Size(grid.Context), b.Config().Parallel.Sequence
	if !c.divided() || max(1, c.Tensor) == tensor && max(1, c.ContextRanks) == context && (c.Sequence == sequence || tensor == 1) {
		return nil
	}
	return fmt.Errorf("%w: they are of a rank that shares its layers with %d and its sequences with %d (sequence: %v), stage %d has %d and %d (sequence: %v)", ErrCosts,
		max(1, c.Tensor), max(1, c.ContextRanks), c.Sequence, stage, tensor, context, sequence)
}

// fits says whether costs are those of a model's sizes.
func (c *Costs) fits(context, hidden int) error {
	if c.Context != context || c.Hidden != hidden {
		return fmt.Errorf("%w: they are of a model with context %d and hidden %d, the configuration has %d and %d", ErrCosts, c.Context, c.Hidden,
			context, hidden)
	}
	return nil
}
