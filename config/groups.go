package config

import (
	"fmt"
	"path"
	"slices"
)

// weightPatterns checks patterns of the names of weights.
var weightPatterns = &check{"patterns of names", func(v any) (string, string) {
	all := v.([]string)
	if msg, hint := listUpTo(maxOptions, textUpTo(maxOptionBytes)).judge(v); msg != "" {
		return msg, hint
	}
	for _, p := range all {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return quoted(p) + " is not a pattern", `use a name in which * stands for any characters, such as "*.mlp.*"`
		}
	}
	return "", ""
}}

// resolve sets the keys of the nth [[optimizer.group]] whose defaults follow from [optimizer].
func (g *Group) resolve(c *Config, nth int) {
	given := func(name string) bool { return c.IsSet(fmt.Sprintf("optimizer.group[%d].%s", nth, name)) }
	o := c.Optimizer
	if !given("name") {
		g.Name = o.Name
	}
	if !given("weight_decay") {
		g.WeightDecay = o.WeightDecay
	}
	if !given("beta1") {
		g.Beta1 = o.Beta1
	}
	if !given("beta2") {
		g.Beta2 = o.Beta2
	}
}

// updatesBy reports whether an update rule is that of the optimizer or of a group.
func (c *Config) updatesBy(name string) bool {
	return c.Optimizer.Name == name || slices.ContainsFunc(c.Optimizer.Group, func(g Group) bool { return g.Name == name })
}

// groups checks each [[optimizer.group]]. The names of weights are known to package plan.
func (c *checker) groups() {
	for i, g := range c.Optimizer.Group {
		key := fmt.Sprintf("optimizer.group[%d].match", i+1)
		if c.clean(key) && len(g.Match) == 0 {
			c.failAt(c.table("optimizer.group", i+1), key, "no patterns are given",
				`set it to a list of patterns of names, such as ["model.embed_tokens.weight", "*.mlp.*"]`)
		}
	}
}
