package config

// Entry is a key with its value and its default, both as TOML.
type Entry struct{ Key, Value, Default string }

// IsDefault reports whether the key has its default.
func (e Entry) IsDefault() bool { return e.Value == e.Default }

// Entries returns all keys of a resolved configuration in the documented order. A default that depends on other keys
// is the one for their values in c. Keys that WithShape will fill, or that a table decides, are left out: they have no
// value yet.
func Entries(c *Config) []Entry {
	var defaults Config
	defaults.setDefaults()
	all := make([]Entry, 0, len(schema))
	for _, f := range c.fields() {
		if c.isOpen(f) || c.tableDecides(f) {
			continue
		}
		e := Entry{Key: f.key, Value: render(f.load(c))}
		e.Default = e.Value
		if fromModel := f.shape && c.Model.From != ""; c.IsSet(f.key) && !fromModel {
			own := c.clone() // as if nobody had set the key
			delete(own.given, f.key)
			f.store(own, f.load(&defaults))
			own.resolve()
			e.Default = render(f.load(own))
		}
		all = append(all, e)
	}
	return all
}
