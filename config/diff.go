package config

import (
	"cmp"
	"slices"
)

// Change is a key that differs between two configurations A and B, with both values as
// TOML.
type Change struct{ Key, A, B string }

// ResumeConflicts returns the differences that prevent a resume of the stored run with the
// configuration now. The layout and the devices, the length of the run, its learning rate over time, what it
// reports and keeps, and the paths of the data may differ. Other keys that decide the losses must be equal. The
// caller must compare the content of the data and of an adapter's base, and journal a change of the rate. A default
// that differs because another key differs is left out.
func ResumeConflicts(stored, now *Config) []Change {
	// With data.val, val_fraction and val_split have no effect: if only one configuration
	// has it, data.val is the difference to report.
	own := (len(stored.Data.Val) > 0) != (len(now.Data.Val) > 0)
	changes := diff(stored, now, func(f *field) bool {
		switch f.key {
		case "data.val":
			return own
		case "model.from":
			if stored.Adapter.Rank > 0 && now.Adapter.Rank > 0 {
				return false // the caller compares the weights of the bases
			}
		case "data.tokenizer":
			if stored.Adapter.Rank > 0 && now.Adapter.Rank > 0 && tokenizerOfBase(stored) && tokenizerOfBase(now) {
				return false // it is the base's, which may have moved
			}
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
	return now.userChanges(changes)
}

// tokenizerOfBase reports whether data.tokenizer is the tokenizer of model.from.
func tokenizerOfBase(c *Config) bool {
	return c.Model.From != "" && c.Data.Tokenizer == TokenizerAt(c.Model.From)
}

// defaultsFrom maps keys to the keys that their defaults follow from. If both differ, only the latter is the user's change.
var defaultsFrom = map[string][]string{
	"model.kv_heads":     {"model.heads"},
	"model.ffn":          {"model.hidden", "model.family"},
	"model.rope_theta":   {"model.family"},
	"batch.microbatch":   {"batch.sequences", "preference.loss"},
	"preference.beta":    {"preference.loss"},
	"device.residual":    {"device.dtype"},
	"optimizer.lr":       {"optimizer.points"},
	"optimizer.min_lr":   {"optimizer.lr", "optimizer.points"},
	"optimizer.momentum": {"optimizer.name"},

	"optimizer.group.name":         {"optimizer.name"},
	"optimizer.group.weight_decay": {"optimizer.weight_decay"},
	"optimizer.group.beta1":        {"optimizer.beta1"},
	"optimizer.group.beta2":        {"optimizer.beta2"},
}

// Diff returns all keys that differ between a and b, in the documented order.
func Diff(a, b *Config) []Change { return diff(a, b, func(*field) bool { return true }) }

func diff(a, b *Config, matters func(*field) bool) []Change {
	var changes []Change
	for _, f := range fieldsOf(a, b) {
		if !matters(f) {
			continue
		}
		if x, y := a.renderOr(f, noTable), b.renderOr(f, noTable); x != y {
			changes = append(changes, Change{Key: f.key, A: x, B: y})
		}
	}
	return changes
}

// noTable is the value, in a Change, of a key of a table that the configuration does not have.
const noTable = "none"

// renderOr returns the value of a key, or other if the configuration does not have the key's table.
func (c *Config) renderOr(f *field, other string) string {
	if !c.has(f) {
		return other
	}
	return render(f.load(c))
}

// CompareKeys compares two keys by the documented order.
func CompareKeys(a, b string) int {
	x, y := lookup(a), lookup(b)
	if x == nil || y == nil {
		return cmp.Compare(slices.Index(keys, a), slices.Index(keys, b))
	}
	first := func(f *field) int {
		return slices.IndexFunc(schema, func(s field) bool { return s.section() == f.section() })
	}
	return cmp.Or(cmp.Compare(first(x), first(y)), cmp.Compare(x.nth, y.nth),
		cmp.Compare(slices.Index(keys, x.row()), slices.Index(keys, y.row())))
}
