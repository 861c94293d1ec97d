package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
)

// Regrouped describes how the groups of ranks that sum together differ between a stored configuration and the present one;
// it is "" if they do not differ. Sums over other groups round differently. The number of stages, the order of ranks, and
// parallel.zero change no bit.
func Regrouped(stored, now *Config) string {
	was, is := stored.sharing(), now.sharing()
	if was == is {
		return ""
	}
	return fmt.Sprintf("was trained with %s and continues with %s", was, is)
}

// sharing describes the groups of ranks that sum together.
func (c *Config) sharing() string {
	g, err := grid.New(c.GridSizes())
	if err != nil { // Validate reports it
		return ""
	}
	tensor := fmt.Sprintf("tp %d", g.TensorSize(0))
	for stage := range c.Pipeline.Stages {
		if g.TensorSize(stage) != g.TensorSize(0) {
			tensor = fmt.Sprintf("tp %v", c.Parallel.Tensor)
		}
	}
	if c.Parallel.Sequence && g.Size(grid.Tensor) > 1 {
		tensor += " with shared positions"
	}
	if g.WholeExperts() {
		tensor += " with whole experts"
	}
	return fmt.Sprintf("%s × cp %d × dp %d", tensor, g.Size(grid.Context), g.Size(grid.Data))
}
