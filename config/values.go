package config

import (
	"fmt"
	"slices"
)

// New returns a configuration that Go code makes, without a file. set changes fields of the default configuration.
// Keys whose defaults follow from other keys, such as optimizer.min_lr, follow from the values that set chose: see With.
// The error is Errors.
func New(set func(*Config), given ...string) (*Config, error) {
	c := &Config{given: make(map[string]Pos)}
	c.setDefaults()
	c.resolve()
	return c.With(set, given...)
}

// With returns a copy of the configuration with the changes that set makes, as if a file had the new values. A key
// counts as given if it was before, or if set changed its value; given names further ones. All other keys get their
// defaults again: with another dtype, device.residual changes, too. set must replace lists, not change their elements.
// Values are not expanded: ${VAR} is for files. The error is Errors.
func (c *Config) With(set func(*Config), given ...string) (*Config, error) {
	own := *c.clone()
	own.shapeLoaded = false
	for _, key := range given {
		if lookup(key) == nil {
			return nil, Errors{{Key: key, Msg: "unknown key", Hint: fmt.Sprintf("name a key such as %q", schema[0].key)}}
		}
		own.given[key] = Pos{}
	}
	set(&own)
	defaults := new(Config)
	defaults.setDefaults()
	for _, f := range fieldsOf(&own, c) {
		if !own.has(f) {
			delete(own.given, f.key)
			continue
		}
		value := f.load(&own)
		if render(value) != c.renderOr(f, render(f.load(defaults))) && !slices.Contains(given, f.key) {
			own.given[f.key] = Pos{}
		}
		if value == "" && (f.key == "run.out" || f.key == "device.residual") { // as in a file that does not have it
			delete(own.given, f.key)
		}
		if !own.IsSet(f.key) {
			f.store(&own, f.load(defaults))
		}
	}
	own.resolve()
	if err := own.Validate(); err != nil {
		return nil, err
	}
	return &own, nil
}
