package plan

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/stages"
)

// groupKey returns a key of the ith [[optimizer.group]], from 0.
func groupKey(i int, name string) string { return fmt.Sprintf("optimizer.group[%d].%s", i+1, name) }

// checkOptimizerGroups checks that each pattern matches a trained weight, and that no weight is in two groups.
func (p *Plan) checkOptimizerGroups() error {
	c, owner := p.cfg, make(map[*stages.Param]int)
	for i, own := range c.Optimizer.Group {
		for _, pattern := range own.Match {
			one := stages.Group(own)
			one.Match = []string{pattern}
			var frozen []string
			trained := false
			for _, w := range p.model.Params {
				switch first, taken := owner[w]; {
				case !one.Has(w):
				case w.Frozen:
					frozen = append(frozen, w.StoredName())
				case taken && first != i:
					return c.Errorf(groupKey(i, "match"), "%s matches %s, which is in [[optimizer.group]] %d, too; each weight may be in "+
						"one group", strictjson.Quote(pattern), strictjson.Quote(w.StoredName()), first+1)
				default:
					owner[w], trained = i, true
				}
			}
			if !trained {
				return p.matchesNothing(c, i, pattern, frozen)
			}
		}
	}
	return nil
}

func (p *Plan) matchesNothing(c *config.Config, i int, pattern string, frozen []string) error {
	const shown = 3
	if len(frozen) > 0 {
		return c.Errorf(groupKey(i, "match"), "%s matches only weights that are not trained: %s; remove the pattern, or freeze less",
			strictjson.Quote(pattern), quotedNames(frozen, shown))
	}
	var names []string
	for _, w := range p.model.Params {
		if !w.Frozen {
			names = append(names, w.StoredName())
		}
	}
	return c.Errorf(groupKey(i, "match"), "%s matches no weight; names are such as %s", strictjson.Quote(pattern), quotedNames(names, shown))
}

// quotedNames writes the first few of some names, and the last one.
func quotedNames(names []string, shown int) string {
	var quoted []string
	for _, name := range names[:min(len(names), shown)] {
		quoted = append(quoted, strictjson.Quote(name))
	}
	if len(names) > shown {
		quoted = append(quoted, "…", strictjson.Quote(names[len(names)-1]))
	}
	return strings.Join(quoted, ", ")
}
