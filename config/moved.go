package config

import (
	"path/filepath"
	"strings"
)

// MoveTo makes the paths of a configuration, which are relative to a folder, absolute.
func (c *Config) MoveTo(folder string) {
	own := func(list *[]string) { *list = append([]string(nil), *list...) } // another copy of the configuration may share it
	for i := range schema {
		if list, ok := schema[i].at(c).(*[]string); ok && schema[i].path && *list != nil {
			own(list)
		}
	}
	for _, p := range c.Paths() {
		if !filepath.IsAbs(*p.Value) {
			*p.Value = filepath.Join(folder, *p.Value)
		}
	}
}

// samePath reports whether two values of a key may be the same path: a run that is resumed from another folder has
// absolute ones in place of its relative ones.
func samePath(a, b string) bool {
	a, b = filepath.Clean(a), filepath.Clean(b)
	if filepath.IsAbs(b) {
		a, b = b, a
	}
	if a == b || filepath.IsAbs(b) || !filepath.IsAbs(a) {
		return a == b
	}
	up := ".." + string(filepath.Separator)
	for strings.HasPrefix(b, up) {
		b = b[len(up):]
	}
	return strings.HasSuffix(a, string(filepath.Separator)+b)
}
