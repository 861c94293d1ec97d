package grid

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// Expert groups are cut from the ranks that have copies of the same weights, those of all context groups and replicas: E
// consecutive ones share the experts of their layers. Ranks with the same place in their expert groups have the same experts.
// These are Megatron-Core's groups (parallel_state.py, 0.16) for an expert tensor size that equals the tensor size, where its
// order has ep before dp and after cp.

// setExpert takes the size of the expert groups.
func (g *Grid) setExpert(n int) error {
	g.expert = max(n, 1)
	if copies := g.Size(Copies); n < 0 || copies%g.expert != 0 {
		return fmt.Errorf("%w: expert groups of %d do not divide the %s with copies of the same weights (cp %d × dp %d)", ErrGrid, n,
			words.Plural(copies, "rank"), g.size[Context], g.size[Data])
	}
	return nil
}

// ExpertPlace returns a rank's place in its expert group, and the number of that group among those of the stage.
func (g *Grid) ExpertPlace(rank int) (place, group int) {
	at := g.Coordinates(rank)
	i := at[Data]*g.size[Context] + at[Context]
	if g.stride[Data] < g.stride[Context] && g.size[Context] > 1 {
		i = at[Context]*g.size[Data] + at[Data]
	}
	return i % g.expert, i / g.expert
}

// expertGroup lists the ranks of Expert or ExpertCopies.
func (g *Grid) expertGroup(rank int, d Dimension) (all []int) {
	copies := g.Group(rank, Copies) // ascending
	place, group := g.ExpertPlace(rank)
	if d == Expert {
		return copies[group*g.expert : (group+1)*g.expert]
	}
	for i := place; i < len(copies); i += g.expert {
		all = append(all, copies[i])
	}
	return all
}

// expertName names such a group, as Name does.
func (g *Grid) expertName(rank int, d Dimension) string {
	at := g.Coordinates(rank)
	var common []string
	for _, other := range []Dimension{Tensor, Pipeline} {
		if g.size[other] > 1 {
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
