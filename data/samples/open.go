package samples

import (
	"fmt"
	"slices"
	"strings"
)

// formats are the formats of this package.
var formats = map[string]func(o Options) (settler, error){
	"csv":   func(o Options) (settler, error) { return opened(openCSV(o)) },
	"idx":   func(o Options) (settler, error) { return opened(openIDX(o)) },
	"jsonl": func(o Options) (settler, error) { return opened(openJSONL(o)) },
}

// settler is a dataset that provides the Options for other files of the same kind: with the same
// columns and the same ids of classes.
type settler interface {
	Dataset
	settle(o Options) Options
}

func opened[T settler](d T, err error) (settler, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Open reads Files of one of this package's formats. An error in a file names the file, the line or
// byte, what was found, and what to do (PlaceError). The only fault that can't be detected is a CSV
// file that was truncated within its last number.
func Open(o Options) (Dataset, error) { return open(o) }

func open(o Options) (settler, error) {
	read, known := formats[o.Format]
	if !known {
		return nil, fmt.Errorf("%w: data.format is %s: it must be one of %s", ErrOptions, shown(o.Format), strings.Join(Formats(), ", "))
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return read(o)
}

// Data is a run's training and validation data.
type Data struct {
	Train  Dataset       // nil if Stream is set
	Stream *StreamSource // nil if Train is set
	Val    Dataset       // validation data; nil: none
}

// Source gives the run its training samples; the seed determines the order of a dataset.
func (d Data) Source(seed uint64) (Source, error) {
	if d.Stream != nil {
		return d.Stream, nil
	}
	return NewSource(d.Train, seed)
}

// OpenRun reads all data of a run: Files for training, and for validation Val or a ValFraction of
// Files, or the data of the format that the program has registered. Files of Val are read like
// those of Files, with the same columns and the same ids of classes.
func OpenRun(o Options) (Data, error) {
	if format, is := own.Get(o.Format); is {
		return format.open(o)
	}
	train, err := open(o)
	switch {
	case err != nil:
		return Data{}, err
	case len(o.Val) > 0 && o.ValFraction != 0:
		return Data{}, fmt.Errorf("%w: data.val and data.val_fraction = %g are both set: remove one", ErrOptions, o.ValFraction)
	case len(o.Val) > 0:
		settled := train.settle(o)
		settled.Files, settled.Labels = o.Val, o.ValLabels
		val, err := open(settled)
		if err != nil {
			return Data{}, err
		}
		return Data{Train: train, Val: val}, alike(train.Fields(), val.Fields())
	case o.ValFraction != 0:
		train, val, err := Split(train, o.ValFraction, o.Seed)
		return Data{Train: train, Val: val}, err
	}
	return Data{Train: train}, nil
}

// alike checks that a model for one dataset's fields can take another dataset.
func alike(train, val []Field) error {
	if len(train) != len(val) {
		return fmt.Errorf("%w: the training data has %d fields, but the validation data has %d", ErrShape, len(train), len(val))
	}
	for i, t := range train {
		v := val[i]
		same := t.Name == v.Name && t.DType == v.DType && t.Classes == v.Classes
		if !same || !slices.EqualFunc(t.Shape, v.Shape, func(a, b int) bool { return a == b || a == -1 }) {
			return fmt.Errorf("%w: field %d is %s in the training data, but %s in the validation data: use data of the same kind", ErrShape, i+1,
				t, v)
		}
	}
	return nil
}

func (f Field) String() string {
	text := fmt.Sprintf("%s of %v %v", shown(f.Name), f.DType, f.Shape)
	if f.Classes > 0 {
		text += fmt.Sprintf(", %d classes", f.Classes)
	}
	return text
}
