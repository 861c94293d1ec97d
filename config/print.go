package config

import (
	"bytes"
	"fmt"
)

// TOML prints every key with its resolved value, in the documented order, but keys of samples
// and of own layers that have their default and that nobody has set. Parse makes an identical
// Config of it. Keys that wait for LoadShape stand as comments, because they have no value yet.
func (c *Config) TOML() []byte {
	var b bytes.Buffer
	var defaults Config
	defaults.setDefaults()
	section := ""
	for i := range schema {
		f := &schema[i]
		told := f.section() == "data" && !c.Text() && c.IsSet(f.key)
		if f.aside && !told && render(f.load(c)) == render(f.load(&defaults)) {
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
			fmt.Fprintf(&b, "# %s: the checkpoint's in model.from\n", f.name())
		case c.isTables(f):
			fmt.Fprintf(&b, "# %s: the table's in schedule\n", f.name())
		default:
			fmt.Fprintf(&b, "%s = %s\n", f.name(), render(f.load(c)))
		}
	}
	return b.Bytes()
}
