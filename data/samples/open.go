package samples

import (
	"fmt"
	"slices"
	"strings"
)

// formats are those of this package.
var formats = map[string]func(o Options) (settler, error){
	"csv":   func(o Options) (settler, error) { return opened(openCSV(o)) },
	"idx":   func(o Options) (settler, error) { return opened(openIDX(o)) },
	"jsonl": func(o Options) (settler, error) { return opened(openJSONL(o)) },
}

// settler is a dataset that says how other files are read like its own: with the same columns,
// and the same ids of classes.
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

// Open reads Files of one of this package's formats. What is wrong in a file is an error that
// names the file, the line or the byte, what was found, and what to do (PlaceError). Only
// a file of CSV that was cut within its last number can't be told from a whole one.
func Open(o Options) (Dataset, error) { return open(o) }

func open(o Options) (settler, error) {
	read, known := formats[o.Format]
	if !known {
		return nil, fmt.Errorf("%w: data.format is %s, it must be one of %s", ErrOptions, shown(o.Format), strings.Join(Formats(), ", "))
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return read(o)
}

// Data is what a run is trained and validated on.
type Data struct {
	Train  Dataset       // nil where Stream is set
	Stream *StreamSource // nil where Train is set
	Val    Dataset       // nil: none
}

// Source gives the run the samples that it is trained on; the seed draws a dataset's order.
func (d Data) Source(seed uint64) (Source, error) {
	if d.Stream != nil {
		return d.Stream, nil
	}
	return NewSource(d.Train, seed)
}

// OpenRun reads what a run needs: Files to train on, and Val or a ValFraction of Files to
// validate on, or what the program has registered for the format. Files of Val are read like
// those to train on, with the same columns and the same ids of classes.
func OpenRun(o Options) (Data, error) {
	if format, is := own.Get(o.Format); is {
		return format.open(o)
	}
	train, err := open(o)
	switch {
	case err != nil:
		return Data{}, err
	case len(o.Val) > 0 && o.ValFraction != 0:
		return Data{}, fmt.Errorf("%w: data.val and data.val_fraction = %g are both set: keep one", ErrOptions, o.ValFraction)
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

// alike says whether a model of one dataset's fields can take another one's.
func alike(train, val []Field) error {
	if len(train) != len(val) {
		return fmt.Errorf("%w: the data to train on has %d fields, that to validate on has %d", ErrShape, len(train), len(val))
	}
	for i, t := range train {
		v := val[i]
		same := t.Name == v.Name && t.DType == v.DType && t.Classes == v.Classes
		if !same || !slices.EqualFunc(t.Shape, v.Shape, func(a, b int) bool { return a == b || a == -1 }) {
			return fmt.Errorf("%w: field %d is %s in the data to train on, but %s in that to validate on: use data of the same kind", ErrShape, i+1,
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
