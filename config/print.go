package config

import (
	"bytes"
	"fmt"
	"strings"
)

// TOML returns every key with its resolved value, in the documented order. It leaves out keys of samples
// and of custom layers that have their default and were not given. Parse returns an identical
// Config for it. Keys that WithShape will fill are comments, because they have no value yet.
func (c *Config) TOML() []byte {
	var b bytes.Buffer
	var defaults Config
	defaults.setDefaults()
	header := ""
	for _, f := range c.fields() {
		given := f.section() == "data" && !c.Text() && c.IsSet(f.key)
		if f.aside && !given && render(f.load(c)) == render(f.load(&defaults)) {
			continue
		}
		if at := strings.TrimSuffix(f.key, "."+f.name()); at != header {
			if header != "" {
				b.WriteByte('\n')
			}
			header = at
			fmt.Fprintf(&b, "%s\n", bracketed(f.section()))
		}
		switch {
		case c.isOpen(f):
			fmt.Fprintf(&b, "# %s: from the checkpoint in model.from\n", f.name())
		case c.tableDecides(f):
			fmt.Fprintf(&b, "# %s: from the table in schedule\n", f.name())
		default:
			fmt.Fprintf(&b, "%s = %s\n", f.name(), render(f.load(c)))
		}
	}
	return b.Bytes()
}
