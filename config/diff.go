package config

// Change is a key that differs between two configurations, with both values as
// TOML.
type Change struct{ Key, A, B string }

// ResumeConflicts returns the differences that forbid to go on from the stored
// run's checkpoint under the configuration of now. How the work is spread and
// done ([pipeline], [device]), how long it goes on, what is reported and kept, and where
// the data lie may differ; whatever decides the numbers may not, and whether the data's
// content is the same is for the caller to compare. One key is free although a
// decaying learning rate follows it: run.steps, since to go on for longer is what
// people resume for.
func ResumeConflicts(stored, now *Config) []Change {
	// Files of its own to validate on leave val_fraction and val_split without effect:
	// where there are some in one alone, that is what differs.
	own := (len(stored.Data.Val) > 0) != (len(now.Data.Val) > 0)
	return diff(stored, now, func(f *field) bool {
		switch f.key {
		case "data.val":
			return own
		case "data.val_fraction", "data.val_split":
			return !own
		}
		if f.path && !f.free {
			a, aText := f.at(stored).(*string)
			b, bText := f.at(now).(*string)
			if aText && bText && *a != "" && *b != "" && samePath(*a, *b) {
				return false
			}
		}
		return !f.free
	})
}

// Diff returns all keys that differ, in the documented order.
func Diff(a, b *Config) []Change { return diff(a, b, func(*field) bool { return true }) }

func diff(a, b *Config, matters func(*field) bool) []Change {
	var changes []Change
	for i := range schema {
		f := &schema[i]
		if !matters(f) {
			continue
		}
		if x, y := render(f.load(a)), render(f.load(b)); x != y {
			changes = append(changes, Change{Key: f.key, A: x, B: y})
		}
	}
	return changes
}
