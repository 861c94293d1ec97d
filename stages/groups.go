package stages

import (
	"path"
	"slices"
)

// Group gives the parameters whose names match a pattern their own settings. Those of no group have the Optimizer's.
type Group struct {
	// Match are patterns as of path.Match, of a parameter's name or of the tensor of a checkpoint that has it.
	Match                     []string
	Name                      string  // AdamW, SGD or Muon
	LRScale                   float64 // factor of the learning rate
	WeightDecay, Beta1, Beta2 float64
}

// Has reports whether the group has a parameter. If checkpoints have it in several tensors, a pattern must match all of them.
func (g *Group) Has(p *Param) bool {
	return slices.ContainsFunc(g.Match, func(pattern string) bool {
		matches := func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		}
		return matches(p.Name) ||
			!slices.ContainsFunc(p.StoredParts(), func(stored StoredPart) bool { return !matches(stored.Name) })
	})
}

// of returns the settings of a parameter, without groups, and the factor of its learning rate.
func (o Optimizer) of(p *Param) (own Optimizer, lrScale float64) {
	groups := o.Groups
	o.Groups = nil
	for i := range groups {
		if g := &groups[i]; g.Has(p) {
			o.Name, o.WeightDecay, o.Beta1, o.Beta2 = g.Name, g.WeightDecay, g.Beta1, g.Beta2
			return o, g.LRScale
		}
	}
	return o, 1
}
