package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Fields of text, for a family that is not a language model.
const (
	TokensField  = "tokens"
	TargetsField = "targets"
)

// EvalKey is the key of the files of an [[eval]], counted from 0.
func EvalKey(i int) string { return fmt.Sprintf("eval[%d].files", i+1) }

// HeldOut divides files of samples to train on into those to train on and those that an [[eval]] of the configuration names, too.
func HeldOut(cfg *config.Config, train []string) (rest, both []string, err error) {
	var held []string
	for i, e := range cfg.Eval {
		files, err := data.Files(e.Files)
		if err != nil {
			return nil, nil, cfg.Errorf(EvalKey(i), "%w", err)
		}
		held = append(held, files...)
	}
	if rest, both, err = data.Exclude(train, held); err != nil {
		err = cfg.Errorf("data.train", "%w", err)
	}
	return rest, both, err
}

// OpenSamples opens data that are not text: d is cfg.Data, or describes other files; then cfg has no [[eval]]. Files of an [[eval]]
// are not trained on.
func OpenSamples(cfg *config.Config, d config.Data) (samples.Data, error) {
	o := samples.Options{Format: d.Format, Separator: d.Separator, Label: d.Label, Features: d.Features, Targets: d.Targets,
		IDs: d.IDs, Varying: d.Varying, Classes: d.Classes, ClassNames: d.ClassNames, Scale: d.Scale}
	if d.Format != "idx" && d.Format != "jsonl" {
		o.Header = d.Header // a registered format may be CSV, too
	}
	if d.Format != "csv" && !cfg.IsSet("data.separator") {
		o.Separator = ""
	}
	var errs []error
	for _, f := range []struct {
		key  string
		from []string
		to   *[]string
	}{{"data.train", d.Train, &o.Files}, {"data.val", d.Val, &o.Val}, {"data.labels", d.Labels, &o.Labels},
		{"data.val_labels", d.ValLabels, &o.ValLabels}} {
		if len(f.from) == 0 {
			continue
		}
		found, err := data.Find(f.from)
		if err != nil {
			errs = append(errs, cfg.Errorf(f.key, "%w", err))
		}
		*f.to = found.Files
		if len(d.Labels) > 0 { // files of samples and files of labels are pairs, and two pairs may share a file
			*f.to = found.All()
		}
	}
	if len(d.Val) == 0 {
		o.ValFraction = d.ValFraction
	}
	if len(errs) > 0 {
		return samples.Data{}, errors.Join(errs...)
	}
	if len(d.Labels) == 0 && len(o.Files) > 0 {
		rest, both, err := HeldOut(cfg, o.Files)
		switch {
		case err != nil:
			return samples.Data{}, err
		case len(rest) == 0:
			return samples.Data{}, cfg.Errorf("data.train",
				"every file is one of an [[eval]], too, so there is nothing to train on: %s", data.Plain(both[0]))
		}
		o.Files = rest
	}
	opened, err := samples.OpenRun(o)
	if err != nil {
		return opened, cfg.Errorf("data.train", "%w", err)
	}
	return opened, nil
}

// FieldsOf returns the fields of a configuration's samples. They are nil for a language model.
func FieldsOf(cfg *config.Config, vocab int) ([]stages.Field, error) {
	switch {
	case cfg.Language():
		return nil, nil
	case cfg.Text():
		shape := []int{cfg.Model.Context}
		return []stages.Field{
			{Name: TokensField, DType: tensorops.Int32, Shape: shape, Classes: vocab},
			{Name: TargetsField, DType: tensorops.Int32, Shape: shape, Classes: vocab},
		}, nil
	}
	d, err := OpenSamples(cfg, cfg.Data)
	if err != nil {
		return nil, err
	}
	fields := SampleFields(d)
	if d.Stream != nil {
		err = d.Stream.Close()
	}
	return fields, err
}

// SampleFields returns the fields of samples as models read them.
func SampleFields(d samples.Data) (fields []stages.Field) {
	of := d.Stream.Fields
	var names []string
	if d.Train != nil {
		of, names = d.Train.Fields, samples.ClassNames(d.Train)
	}
	for _, f := range of() {
		field := stages.Field{Name: f.Name, DType: f.DType, Shape: f.Shape, Classes: f.Classes}
		if f.Classes > 0 {
			field.Names = names
		}
		fields = append(fields, field)
	}
	return fields
}

// SameFields returns an error if the fields of the data differ from those that a model was trained on.
func SameFields(was, is []stages.Field) error {
	if len(was) != len(is) {
		return fmt.Errorf("the samples have %d fields, but the model was trained on %d; use data with the same fields", len(is), len(was))
	}
	for i := range was {
		if d := fieldDifference(was[i], is[i]); d != "" {
			return fmt.Errorf("field %d of the samples differs from the training data: %s; use data with the same fields", i+1, d)
		}
	}
	return nil
}

func fieldDifference(was, is stages.Field) string {
	switch {
	case was.Name != is.Name:
		return fmt.Sprintf("its name is %q, not %q", is.Name, was.Name)
	case was.DType != is.DType:
		return fmt.Sprintf("%q has type %v, not %v", is.Name, is.DType, was.DType)
	case !slices.Equal(was.Shape, is.Shape):
		return fmt.Sprintf("%q has shape %v in each sample, not %v", is.Name, is.Shape, was.Shape)
	case was.Classes != is.Classes:
		return fmt.Sprintf("%q has %d classes, not %d", is.Name, is.Classes, was.Classes)
	case len(was.Names) != len(is.Names):
		return fmt.Sprintf("the classes of %q have %d names, not %d", is.Name, len(is.Names), len(was.Names))
	}
	for id, name := range was.Names {
		if is.Names[id] != name {
			return fmt.Sprintf("class %d of %q is %+q, not %+q", id, is.Name, is.Names[id], name)
		}
	}
	return ""
}
