package samples

import (
	"fmt"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/caught"
	"github.com/troupe-ml/troupe/tensorops"
)

// CheckFields checks the fields of a dataset. The errors are ErrOptions and ErrShape.
func CheckFields(fields []Field) error {
	if n := len(fields); n == 0 || n > limitFields {
		return fmt.Errorf("%w: a sample has %d fields: it must have from 1 to %d", ErrOptions, n, limitFields)
	}
	seen := make(map[string]bool)
	for i, f := range fields {
		name := shown(f.Name)
		switch {
		case f.Name == "":
			return fmt.Errorf("%w: field %d of %d has no name", ErrOptions, i+1, len(fields))
		case !utf8.ValidString(f.Name):
			return fmt.Errorf("%w: the name of field %d, %s, is not UTF-8", ErrOptions, i+1, name)
		case seen[f.Name]:
			return fmt.Errorf("%w: two fields have the name %s", ErrOptions, name)
		case f.DType > tensorops.Int32:
			return fmt.Errorf("%w: field %s is %v: fields must be %v or %v", ErrOptions, name, f.DType, tensorops.Float32, tensorops.Int32)
		case len(f.Shape) > limitRank:
			return fmt.Errorf("%w: field %s has %d dimensions; the limit is %d", ErrShape, name, len(f.Shape), limitRank)
		case f.Classes < 0 || f.Classes > limitClasses:
			return fmt.Errorf("%w: field %s has %d classes: it may have from 1 to %d, or 0 if it is not a label", ErrOptions, name, f.Classes,
				limitClasses)
		case f.Classes > 0 && f.DType != tensorops.Int32:
			return fmt.Errorf("%w: field %s is a label of %d classes, but of type %v: labels must be %v", ErrOptions, name, f.Classes, f.DType,
				tensorops.Int32)
		}
		for d, n := range f.Shape {
			if n != -1 && (n < 1 || n > tensorops.MaxDim) {
				return fmt.Errorf("%w: dimension %d of field %s is %d: it must be from 1 to %d, or -1 if it differs between samples", ErrShape,
					d, name, n, tensorops.MaxDim)
			}
		}
		seen[f.Name] = true
	}
	return nil
}

// At reads a sample of a dataset and checks it with CheckSample.
func At(d Dataset, i int) (Sample, error) {
	s, err := at(d, i)
	if err == nil {
		err = CheckSample(d.Fields(), s)
	}
	if err != nil {
		return nil, fmt.Errorf("sample %d of %d: %w", i, d.Len(), err)
	}
	return s, nil
}

// at calls the dataset's At and turns a panic into an error.
func at(d Dataset, i int) (s Sample, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught.Panic(v)
		}
	}()
	return d.At(i)
}

// CheckSample checks that a sample matches its fields and that its labels are among their classes.
// The errors are ErrShape and ErrLabel.
func CheckSample(fields []Field, s Sample) error {
	if len(s) != len(fields) {
		return fmt.Errorf("%w: the sample has %d fields, want %d", ErrShape, len(s), len(fields))
	}
	for i, f := range fields {
		if err := f.check(s[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f Field) check(a tensorops.Array) error {
	if err := a.Check(); err != nil {
		return fmt.Errorf("field %s: %w", shown(f.Name), err)
	}
	if a.DType() != f.DType {
		return fmt.Errorf("%w: field %s is of type %v, want %v", ErrShape, shown(f.Name), a.DType(), f.DType)
	}
	if !f.fits(a.Shape) {
		return fmt.Errorf("%w: field %s has the shape %v, want %v", ErrShape, shown(f.Name), a.Shape, f.Shape)
	}
	if f.Classes > 0 {
		for _, id := range a.Int {
			if id < 0 || int(id) >= f.Classes {
				return fmt.Errorf("%w: field %s has the label %d, but its %d classes are numbered 0 to %d", ErrLabel, shown(f.Name), id, f.Classes,
					f.Classes-1)
			}
		}
	}
	return nil
}

// fits reports whether the field allows the shape of a sample.
func (f Field) fits(shape []int) bool {
	if len(shape) != len(f.Shape) {
		return false
	}
	for d, n := range f.Shape {
		if shape[d] < 1 || n != -1 && shape[d] != n {
			return false
		}
	}
	return true
}
