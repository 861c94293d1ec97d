package samples

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// chosenColumns are indexes of a row; -1: no label.
type chosenColumns struct {
	features, targets []int
	label             int
}

// choose finds the columns of a file, whose header may be in another order than that of the first
// file. If data.features is not set, all files must have the same columns.
func (c *csvTable) choose(header []string) (chosen chosenColumns, err error) {
	places := make(map[string]int, len(header))
	for i, name := range header {
		if before, twice := places[name]; twice {
			return chosen, fmt.Errorf("%w: columns %d and %d are both named %s: rename one, or set data.header = false if the row is not a header",
				ErrFormat, before+1, i+1, shown(name))
		}
		places[name] = i
	}
	o := c.options
	if c.header == nil {
		c.header = header
		if c.features = o.Features; len(c.features) == 0 {
			for _, name := range header {
				if name != o.Label && !slices.Contains(o.Targets, name) {
					c.features = append(c.features, name)
				}
			}
		}
		if len(c.features) == 0 {
			return chosen, fmt.Errorf("%w: the only column is %s: check data.separator", ErrFormat, list(header))
		}
	} else if len(o.Features) == 0 {
		for i, name := range header {
			if !slices.Contains(c.header, name) {
				return chosen, fmt.Errorf("%w: column %d is named %s, but the first file, %s, has no such column: choose columns with data.features",
					ErrFormat, i+1, shown(name), strictjson.Plain(o.Files[0]))
			}
		}
	}
	find := func(key string, names []string) (found []int) {
		for _, name := range names {
			i, there := places[name]
			if !there && err == nil {
				err = fmt.Errorf("%w: %s names the column %s, which does not exist: the columns are %s", ErrOptions, key, shown(name), list(header))
				if !o.Header {
					err = fmt.Errorf("%w: %s names the column %s, which does not exist: without data.header the columns are numbered from 1 to %d",
						ErrOptions, key,
						shown(name), len(header))
				}
			}
			found = append(found, i)
		}
		return found
	}
	chosen.label = -1
	if o.Label != "" {
		chosen.label = find("data.label", []string{o.Label})[0]
	}
	chosen.targets = find("data.targets", o.Targets)
	chosen.features = find("data.features", c.features)
	return chosen, err
}
