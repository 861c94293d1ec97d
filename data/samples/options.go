package samples

import (
	"fmt"
	"slices"
)

// Options says what to read. Each field corresponds to a key of a config's section [data], given in
// parentheses.
type Options struct {
	// Format is "csv", "idx", "jsonl", or the name of a format that the program has registered
	// (data.format).
	Format string
	// Files are read one after the other (data.train). Files compressed with gzip or zstd are decompressed.
	Files []string
	// Labels are the label files for IDX, one for each of Files (data.labels).
	Labels []string

	// Val and ValLabels are the validation files (data.val, data.val_labels). Without them,
	// validation uses ValFraction of the samples (data.val_fraction), chosen by Seed. A Seed of 0
	// gives runs of any seed the same validation samples. With neither there is no validation. Open
	// ignores these four.
	Val, ValLabels []string
	ValFraction    float64
	Seed           uint64

	// Header says that the first row of each CSV file names its columns (data.header). Without it
	// the columns have the names "1", "2", ….
	Header bool
	// Separator separates the cells of CSV; "" is a comma (data.separator).
	Separator string
	// Label is the column, or the JSON key, with the class (data.label).
	Label string
	// Features are the columns, or the JSON keys, from which to learn (data.features). The default
	// is all columns except Label and Targets, or the key "x". Columns form one field; each key is
	// its own field with the name of the key.
	Features []string
	// Targets are the columns, or the keys, of numbers to predict, instead of a Label
	// (data.targets).
	Targets []string
	// IDs are the JSON keys among Features and Targets that hold integers, such as token ids
	// (data.ids).
	IDs []string
	// Varying are the JSON keys whose arrays may differ in shape between samples (data.varying).
	Varying []string

	// Classes is the number of classes of the Label (data.classes). 0: take it from the data, as
	// one more than the largest label, or as the number of different names.
	Classes int
	// ClassNames are the names of the classes by id (data.class_names). Without them, labels are
	// either all integers, or all names, which get ids in sorted order.
	ClassNames []string
	// Scale multiplies features, for example by 1/16 = 0.0625 for numbers up to 16 (data.scale). 0
	// means 1, or 1/255 for IDX files of unsigned bytes.
	Scale float64

	// FeatureField and LabelField are the names of the fields for CSV and IDX; "" means "x" for
	// features and "y" for labels or targets.
	FeatureField, LabelField string
}

// unused returns, for the keys that a format does not use, whether they are set.
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

// check checks everything that does not need the files.
func (o Options) check() error {
	var unused []string
	for key, is := range o.unused() {
		if is {
			unused = append(unused, key)
		}
	}
	if len(unused) > 0 {
		slices.Sort(unused)
		return fmt.Errorf("%w: %s has no effect with data.format = %q: remove it", ErrOptions, unused[0], o.Format)
	}
	if len(o.Files) == 0 {
		return fmt.Errorf("%w: there is no file to read: set data.train", ErrOptions)
	}
	if o.Label != "" && len(o.Targets) > 0 {
		return fmt.Errorf("%w: data.label = %s is for classes, and data.targets = %s is for numbers to predict: set only one of them", ErrOptions,
			shown(o.Label), list(o.Targets))
	}
	if finite := o.Scale-o.Scale == 0; !finite {
		return fmt.Errorf("%w: data.scale is %g: it must be a finite number", ErrOptions, o.Scale)
	}
	if o.Classes < 0 || o.Classes > limitClasses {
		return fmt.Errorf("%w: data.classes is %d: it must be from 1 to %d, or 0 to count them", ErrOptions, o.Classes, limitClasses)
	}
	if n := len(o.ClassNames); n > limitClassNames || o.Classes > 0 && n > o.Classes {
		return fmt.Errorf("%w: data.class_names has %d names, but data.classes is %d: make the numbers equal, at most %d", ErrOptions, n,
			o.Classes,
			limitClassNames)
	}
	for i, name := range o.ClassNames {
		if slices.Contains(o.ClassNames[:i], name) {
			return fmt.Errorf("%w: data.class_names has %s twice", ErrOptions, shown(name))
		}
	}
	return o.checkKeys()
}

// checkKeys refuses columns and keys that are chosen twice or have no use.
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
				return fmt.Errorf("%w: %s is in both %s and %s: remove it from one", ErrOptions, shown(name), before, chosen.key)
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
		return fmt.Errorf("%w: %s is data.label, which is always an id: remove it from data.ids", ErrOptions, shown(o.Label))
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
