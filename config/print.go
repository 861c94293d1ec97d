package config

import (
	"bytes"
	"fmt"
)

// TOML returns every key with its resolved value, in the documented order. It leaves out keys of samples
// and of custom layers that have their default and were not given. Parse returns an identical
// Config for it. Keys that WithShape will fill are comments, because they have no value yet.
func (c *Config) TOML() []byte {
	var b bytes.Buffer
	var defaults Config
	defaults.setDefaults()
	section := ""
	for i := range schema {
		f := &schema[i]
		given := f.section() == "data" && !c.Text() && c.IsSet(f.key)
		if f.aside && !given && render(f.load(c)) == render(f.load(&defaults)) {
			continue
		}
		if f.section() != section {
			if section != "" {
				b.WriteByte('\n')
			}
			section = f.section()
			fmt.Fprintf(&b, "[%s]\n", section)
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
