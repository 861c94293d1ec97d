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

// Fields of text, where a family that is no language model learns from it.
const (
	TokensField  = "tokens"
	TargetsField = "targets"
)

// OpenSamples opens data that are no text: d is cfg.Data, or what other files are read by.
func OpenSamples(cfg *config.Config, d config.Data) (samples.Data, error) {
	o := samples.Options{Format: d.Format, Separator: d.Separator, Label: d.Label, Features: d.Features, Targets: d.Targets,
		IDs: d.IDs, Varying: d.Varying, Classes: d.Classes, ClassNames: d.ClassNames, Scale: d.Scale}
	if d.Format != "idx" && d.Format != "jsonl" {
		o.Header = d.Header // a registered format may be for CSV too
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
		if len(d.Labels) > 0 { // files of samples and files of labels are pairs: two may share one
			*f.to = found.All()
		}
	}
	if len(d.Val) == 0 {
		o.ValFraction = d.ValFraction
	}
	if len(errs) > 0 {
		return samples.Data{}, errors.Join(errs...)
	}
	opened, err := samples.OpenRun(o)
	if err != nil {
		return opened, cfg.Errorf("data.train", "%w", err)
	}
	return opened, nil
}

// FieldsOf describes the samples of a configuration's data: nil for a language model.
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

// SampleFields describes samples as models take them.
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

// SameFields says how the data differ from what a model has learned from.
func SameFields(was, is []stages.Field) error {
	if len(was) != len(is) {
		return fmt.Errorf("the samples have %d fields, and the model was trained on %d: use data of the same kind", len(is), len(was))
	}
	for i := range was {
		if d := fieldDifference(was[i], is[i]); d != "" {
			return fmt.Errorf("field %d of the samples differs from what the model was trained on: %s: use data of the same kind", i+1, d)
		}
	}
	return nil
}

func fieldDifference(was, is stages.Field) string {
	switch {
	case was.Name != is.Name:
		return fmt.Sprintf("it is called %q, and was %q", is.Name, was.Name)
	case was.DType != is.DType:
		return fmt.Sprintf("%q is of %v, and was of %v", is.Name, is.DType, was.DType)
	case !slices.Equal(was.Shape, is.Shape):
		return fmt.Sprintf("%q has the shape %v in each sample, and had %v", is.Name, is.Shape, was.Shape)
	case was.Classes != is.Classes:
		return fmt.Sprintf("%q has %d classes, and had %d", is.Name, is.Classes, was.Classes)
	case len(was.Names) != len(is.Names):
		return fmt.Sprintf("the classes of %q have %d names, and had %d", is.Name, len(is.Names), len(was.Names))
	}
	for id, name := range was.Names {
		if is.Names[id] != name {
			return fmt.Sprintf("class %d of %q is called %+q, and was %+q", id, is.Name, is.Names[id], name)
		}
	}
	return ""
}
