package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
)

// Regrouped describes how the groups of ranks that sum together differ between a stored configuration and the present one;
// it is "" if they do not differ. Sums over other groups round differently. The number of stages and parallel.zero change no bit, nor
// does the order of ranks, except where one sum is over ranks along several dimensions.
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
	return fmt.Sprintf("%s × cp %d × dp %d", tensor, g.Size(grid.Context), g.Size(grid.Data)) + sumOrder(g)
}

// sumOrder describes the order of the ranks whose gradients are added, which is that of their numbers; "": it is the default one, or
// they differ along one dimension only. With whole experts the gradients of experts are also added over tensor groups.
func sumOrder(g *grid.Grid) string {
	summed := func(order string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(order, "-"), func(name string) bool {
			return !slices.ContainsFunc([]grid.Dimension{grid.Tensor, grid.Context, grid.Data}, func(d grid.Dimension) bool {
				return d.String() == name && g.Size(d) > 1 && (d != grid.Tensor || g.WholeExperts())
			})
		}), "-")
	}
	if order := summed(g.Order()); order != summed(grid.DefaultOrder) {
		return " in the order " + order
	}
	return ""
}
