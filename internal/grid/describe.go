package grid

import (
	"fmt"
	"slices"
	"strings"
)

// Dimensions lists the dimensions of coordinates in the order of DefaultOrder.
func Dimensions() []Dimension { return []Dimension{Tensor, Context, Pipeline, Data} }

// Shown lists the dimensions along which groups are shown: Dimensions, and with HasExpertGroups Expert and ExpertCopies.
func (g *Grid) Shown() []Dimension {
	if !g.HasExpertGroups() {
		return Dimensions()
	}
	return append(Dimensions(), Expert, ExpertCopies)
}

// At returns a rank's place along a dimension of Shown.
func (g *Grid) At(rank int, d Dimension) int {
	switch place, group := g.ExpertPlace(rank); d {
	case Expert:
		return place
	case ExpertCopies:
		return group
	}
	return g.Coordinates(rank)[d]
}

// Describe returns one line with the number of ranks, their order, and the number and size of groups along each dimension, such
// as "8 ranks, tp 2 × cp 1 × pp 2 × dp 2 in the order tp-cp-pp-dp: tp 4 groups of 2, pp 4 of 2, dp 4 of 2".
func (g *Grid) Describe() string {
	var all []string
	for _, d := range g.Shown() {
		if counts := g.groupCounts(d); counts != "" {
			all = append(all, fmt.Sprintf("%v %s", d, counts))
		}
	}
	ranks := "ranks"
	if g.World() == 1 {
		ranks = "rank"
	}
	text := fmt.Sprintf("%d %s, %v in the order %s", g.World(), ranks, g, g.order)
	if len(all) == 0 {
		return text
	}
	return text + ": groups " + strings.Join(all, ", ")
}

// groupCounts counts the groups of each size above 1 along a dimension.
func (g *Grid) groupCounts(d Dimension) string {
	sizes := make(map[int]int) // the ranks in groups of each size
	stages := []int{g.size[Tensor]}
	if g.tensor != nil {
		stages = g.tensor
	}
	rest := g.size[Context] * g.size[Data]
	switch {
	case d == Tensor && g.tensor != nil:
		for _, n := range stages {
			sizes[n] += n * rest
		}
	case d == Pipeline && g.tensor != nil:
		for t := range g.size[Tensor] { // the stages that have a rank of this place
			n := 0
			for _, size := range stages {
				if t < size {
					n++
				}
			}
			sizes[n] += n * rest
		}
	default:
		sizes[g.Size(d)] = g.World()
	}
	var parts []string
	for n, ranks := range sizes {
		if n > 1 {
			parts = append(parts, fmt.Sprintf("%d of %d", ranks/n, n))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " and ")
}
