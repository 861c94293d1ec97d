package samples

import (
	"fmt"
	"slices"
)

// Options say what to read. Each is a key of a configuration's section [data], which is
// given with it.
type Options struct {
	// Format is "csv", "idx", "jsonl", or the name of what the program has registered
	// (data.format).
	Format string
	// Files are read one behind the other (data.train). Files that gzip has compressed are
	// read as what is in them.
	Files []string
	// Labels are the files of labels of IDX, one for each of Files (data.labels).
	Labels []string

	// Val and ValLabels are the files to validate on (data.val, data.val_labels). Without them
	// it is ValFraction of the samples (data.val_fraction), which Seed chooses: 0 for runs of any
	// seed, so that all are validated on the same; with neither, nothing is kept for
	// validation. Open takes no notice of these four.
	Val, ValLabels []string
	ValFraction    float64
	Seed           uint64

	// Header says that each CSV file's first row names its columns (data.header). Without it
	// columns have the names "1", "2", ….
	Header bool
	// Separator stands between the cells of CSV; "" is a comma (data.separator).
	Separator string
	// Label is the column, or the key of JSON, that has the class (data.label).
	Label string
	// Features are the columns, or the keys, to learn from (data.features). Without them they are
	// all columns but Label and Targets, or the key "x". Columns become one field; each key
	// is a field, whose name is the key.
	Features []string
	// Targets are the columns, or the keys, of numbers to predict, in place of a Label
	// (data.targets).
	Targets []string
	// IDs are those keys of JSON, of Features or Targets, that hold whole numbers, such as
	// token ids (data.ids).
	IDs []string
	// Varying are those keys of JSON whose arrays may differ in shape from sample to sample
	// (data.varying).
	Varying []string

	// Classes is how many classes the Label has (data.classes). 0: as many as the data has,
	// which are one more than the largest label, or the different names.
	Classes int
	// ClassNames are the names of the classes by their ids (data.class_names). Without them
	// labels are whole numbers, or all are names, whose ids are their places in sorted order.
	ClassNames []string
	// Scale multiplies features, such as 1/16 = 0.0625 for numbers up to 16 (data.scale).
	// 0 is 1, but 1/255 for IDX of unsigned bytes.
	Scale float64

	// FeatureField and LabelField are the names of the fields of CSV and IDX; "" is "x" for
	// features and "y" for labels or targets.
	FeatureField, LabelField string
}

// unused are the keys that a format does not know, and the value that is not set.
func (o Options) unused() map[string]bool {
	csv, idx, jsonl := o.Format == "csv", o.Format == "idx", o.Format == "jsonl"
	return map[string]bool{
		"data.labels":      len(o.Labels) > 0 && !idx,
		"data.val_labels":  len(o.ValLabels) > 0 && !idx,
		"data.header":      o.Header && !csv,
		"data.separator":   o.Separator != "" && !csv,
		"data.label":       o.Label != "" && idx,
		"data.features":    len(o.Features) > 0 && idx,
		"data.targets":     len(o.Targets) > 0 && idx,
		"data.ids":         len(o.IDs) > 0 && !jsonl,
		"data.varying":     len(o.Varying) > 0 && !jsonl,
		"data.class_names": len(o.ClassNames) > 0 && idx,
	}
}

// check is about what can be said without a look into the files.
func (o Options) check() error {
	var unused []string
	for key, is := range o.unused() {
		if is {
			unused = append(unused, key)
		}
	}
	if len(unused) > 0 {
		slices.Sort(unused)
		return fmt.Errorf("%w: %s says nothing with data.format = %q: take it out", ErrOptions, unused[0], o.Format)
	}
	if len(o.Files) == 0 {
		return fmt.Errorf("%w: no file to read", ErrOptions)
	}
	if o.Label != "" && len(o.Targets) > 0 {
		return fmt.Errorf("%w: data.label = %s is for classes and data.targets = %s for numbers to predict: set one of them", ErrOptions,
			shown(o.Label), list(o.Targets))
	}
	if finite := o.Scale-o.Scale == 0; !finite {
		return fmt.Errorf("%w: data.scale is %g, it must be a finite number", ErrOptions, o.Scale)
	}
	if o.Classes < 0 || o.Classes > limitClasses {
		return fmt.Errorf("%w: data.classes is %d, it must lie in 1 to %d, or be 0 to count them", ErrOptions, o.Classes, limitClasses)
	}
	if n := len(o.ClassNames); n > limitClassNames || o.Classes > 0 && n > o.Classes {
		return fmt.Errorf("%w: data.class_names has %d names, and data.classes is %d: name as many, at most %d", ErrOptions, n, o.Classes,
			limitClassNames)
	}
	for i, name := range o.ClassNames {
		if slices.Contains(o.ClassNames[:i], name) {
			return fmt.Errorf("%w: data.class_names has %s twice", ErrOptions, shown(name))
		}
	}
	return o.checkKeys()
}

// checkKeys looks for columns and keys that are chosen twice, or for nothing.
func (o Options) checkKeys() error {
	seen := make(map[string]string)
	for _, chosen := range []struct {
		key   string
		names []string
	}{{"data.label", []string{o.Label}}, {"data.targets", o.Targets}, {"data.features", o.Features}} {
		for _, name := range chosen.names {
			if name == "" {
				continue
			}
			if before, twice := seen[name]; twice {
				return fmt.Errorf("%w: %s is in %s and in %s: take it once", ErrOptions, shown(name), before, chosen.key)
			}
			seen[name] = chosen.key
		}
	}
	if len(o.Features) == 0 {
		seen["x"] = "data.features"
	}
	for _, name := range slices.Concat(o.IDs, o.Varying) {
		if _, is := seen[name]; !is {
			return fmt.Errorf("%w: %s is in data.ids or data.varying, but neither a feature nor a target", ErrOptions, shown(name))
		}
	}
	if o.Label != "" && slices.Contains(o.IDs, o.Label) {
		return fmt.Errorf("%w: %s is data.label, which is an id anyway: take it out of data.ids", ErrOptions, shown(o.Label))
	}
	return nil
}

func (o Options) featureField() string { return orElse(o.FeatureField, "x") }
func (o Options) labelField() string   { return orElse(o.LabelField, "y") }

func orElse[T comparable](value, other T) T {
	var none T
	if value == none {
		return other
	}
	return value
}
