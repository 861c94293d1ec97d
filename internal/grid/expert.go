package grid

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Expert groups are cut from the ranks of a stage that have copies of the same experts, or of the same part of them: E consecutive ones
// share the experts of their layers. Ranks with the same place in their expert groups have the same experts.
// These are Megatron-Core's groups (parallel_state.py, 0.16), where its order has ep before dp and after cp. Its expert tensor size is
// the tensor size, or 1 for whole experts.

// setExpert takes the size of the expert groups, and the number of ranks that share each expert.
func (g *Grid) setExpert(n, tensor int) error {
	g.expert = max(n, 1)
	switch size := g.size[Tensor]; {
	case tensor == 0:
	case g.tensor != nil:
		return fmt.Errorf("%w: an expert tensor size of %d needs the same tensor size in all stages, which have %v; leave it out, or give "+
			"one tensor size", ErrGrid, tensor, g.tensor)
	case tensor != size && tensor != 1:
		return fmt.Errorf("%w: an expert tensor size of %d: it must be the tensor size, %d, or 1 for whole experts", ErrGrid, tensor, size)
	default:
		g.whole = tensor < size
	}
	if n < 0 || g.expertSharers()%g.expert != 0 {
		return fmt.Errorf("%w: expert groups of %d do not divide the %s", ErrGrid, n, g.sharersText())
	}
	return nil
}

// sharersText says how many ExpertSharers there are, and why.
func (g *Grid) sharersText() string {
	ranks, rest := words.Plural(g.expertSharers(), "rank"), fmt.Sprintf("cp %d × dp %d", g.size[Context], g.size[Data])
	if g.whole {
		return fmt.Sprintf("%s of a stage (tp %d × %s)", ranks, g.size[Tensor], rest)
	}
	return fmt.Sprintf("%s with copies of the same weights (%s)", ranks, rest)
}

// WholeExperts reports whether the ranks of a tensor group have whole experts, although they share all other layers.
func (g *Grid) WholeExperts() bool { return g.whole }

// HasExpertGroups reports whether the ranks with the same experts are others than those with copies of all else.
func (g *Grid) HasExpertGroups() bool { return g.expert > 1 || g.whole }

// expertSharers returns the number of ExpertSharers.
func (g *Grid) expertSharers() int {
	n := g.size[Context] * g.size[Data]
	if g.whole {
		n *= g.size[Tensor]
	}
	return n
}

// ExpertSharers lists, in ascending order, the ranks from which a rank's expert group is cut: those of Copies, and with whole experts
// also those of their tensor groups.
func (g *Grid) ExpertSharers(rank int) []int {
	if g.whole {
		return g.Group(rank, Tensor, Copies)
	}
	return g.Group(rank, Copies)
}

// ExpertPlace returns a rank's place in its expert group, and the number of that group among those of the stage.
func (g *Grid) ExpertPlace(rank int) (place, group int) {
	dims := []Dimension{Context, Data}
	if g.whole {
		dims = append(dims, Tensor)
	}
	slices.SortFunc(dims, func(a, b Dimension) int { return cmp.Compare(g.stride[a], g.stride[b]) })
	at, i, n := g.Coordinates(rank), 0, 1 // i: its place among ExpertSharers
	for _, d := range dims {
		i, n = i+at[d]*n, n*g.size[d]
	}
	return i % g.expert, i / g.expert
}

// Twins lists, in ascending order, the ranks with the same weights as a rank, experts and all else, and the rank itself.
func (g *Grid) Twins(rank int) []int {
	copies := g.Group(rank, Copies)
	if !g.HasExpertGroups() {
		return copies
	}
	place, _ := g.ExpertPlace(rank)
	return slices.DeleteFunc(copies, func(other int) bool {
		there, _ := g.ExpertPlace(other)
		return there != place
	})
}

// Replicated reports whether each rank has twins beside itself.
func (g *Grid) Replicated() bool {
	if !g.whole {
		return g.Size(ExpertCopies) > 1
	}
	twins := make(map[[2]int]int) // by place in the tensor group and in the expert group; all stages are equal
	for _, rank := range g.ExpertSharers(0) {
		place, _ := g.ExpertPlace(rank)
		twins[[2]int{g.Coordinates(rank)[Tensor], place}]++
	}
	for _, n := range twins {
		if n == 1 {
			return false
		}
	}
	return true
}

// expertGroup lists the ranks of Expert or ExpertCopies.
func (g *Grid) expertGroup(rank int, d Dimension) (all []int) {
	sharers := g.ExpertSharers(rank)
	place, group := g.ExpertPlace(rank)
	if d == Expert {
		return sharers[group*g.expert : (group+1)*g.expert]
	}
	for i := place; i < len(sharers); i += g.expert {
		all = append(all, sharers[i])
	}
	return all
}

// expertName names such a group, as Name does.
func (g *Grid) expertName(rank int, d Dimension) string {
	at := g.Coordinates(rank)
	var common []string
	for _, other := range []Dimension{Tensor, Pipeline} {
		if g.size[other] > 1 && (!g.whole || other != Tensor) {
			common = append(common, fmt.Sprintf("%v %d", other, at[other]))
		}
	}
	place, group := g.ExpertPlace(rank)
	switch {
	case d == Expert && g.Size(ExpertCopies) > 1:
		common = append(common, fmt.Sprintf("%v %d", ExpertCopies, group))
	case d == ExpertCopies && g.expert > 1:
		common = append(common, fmt.Sprintf("%v %d", Expert, place))
	}
	if len(common) == 0 {
		return d.String()
	}
	return d.String() + " of " + strings.Join(common, ", ")
}
