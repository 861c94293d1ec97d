package config

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/grid"
)

// Regrouped says how the ranks that share sums differ between a stored configuration and today's; ""
// where they don't. Sums over other ranks are rounded otherwise. How the model is cut into stages, how
// ranks are numbered and what replicas keep of each other changes no bit.
func Regrouped(stored, now *Config) string {
	was, is := stored.sharing(), now.sharing()
	if was == is {
		return ""
	}
	return fmt.Sprintf("was trained under %s, and goes on under %s", was, is)
}

// sharing says which ranks share sums.
func (c *Config) sharing() string {
	g, err := grid.New(c.GridSizes())
	if err != nil { // which Validate tells
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
	return fmt.Sprintf("%s × cp %d × dp %d", tensor, g.Size(grid.Context), g.Size(grid.Data))
}
