package config

// Change is a key that differs between two configurations, with both values as
// TOML.
type Change struct{ Key, A, B string }

// Diff returns the keys that differ, in the documented order.
func Diff(a, b *Config) []Change {
	return diff(a, b, func(*field) bool { return true })
}

// ResumeConflicts returns the differences that forbid to go on from the stored
// run's checkpoint under the configuration of now. How the work is spread and
// done ([pipeline], [device]), how long it goes on, and what is reported and kept
// may differ; whatever decides the numbers may not. One key is free although a
// decaying learning rate follows it: run.steps, since to go on for longer is what
// people resume for.
func ResumeConflicts(stored, now *Config) []Change {
	return diff(stored, now, func(f *field) bool { return !f.free })
}

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
