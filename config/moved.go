package config

import (
	"path/filepath"
	"strings"
)

// MoveTo makes the configuration's relative paths absolute: they are relative to folder.
func (c *Config) MoveTo(folder string) {
	own := func(list *[]string) { *list = append([]string(nil), *list...) } // copies of the configuration may share it
	*c = *c.clone()
	for _, f := range c.fields() {
		if list, ok := f.at(c).(*[]string); ok && f.path && *list != nil {
			own(list)
		}
	}
	for _, p := range c.Paths() {
		if !filepath.IsAbs(*p.Value) {
			*p.Value = filepath.Join(folder, *p.Value)
		}
	}
}

// samePath reports whether two values of a key may be the same path. A run that resumes from another working directory
// has absolute paths instead of its relative ones.
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
