package samples

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// Field describes one value of every sample.
type Field struct {
	Name    string
	DType   tensorops.DType
	Shape   []int // shape of one sample; -1: the size differs between samples
	Classes int   // for a label, the number of classes, with ids from 0 to Classes−1; 0: not a label
}

// Sample is one sample's fields, in the order of Dataset.Fields.
type Sample []tensorops.Array

// Dataset is data with a known number of samples. Its methods are safe for concurrent use.
type Dataset interface {
	// Fields describes the samples. It always returns the same fields.
	Fields() []Field
	// Len returns the number of samples.
	Len() int
	// At returns sample i, from 0 to Len−1, the same in each call. Neither the dataset nor the
	// caller may change the sample later.
	At(i int) (Sample, error)
}

// Batcher is a dataset that makes microbatches itself, for example to pad samples of different
// shapes. For other datasets Collate makes them.
type Batcher interface {
	// Batch stacks samples: each array's first dimension is the number of samples. The same samples
	// must give the same arrays. It must be safe for concurrent use.
	Batch(samples []Sample) ([]tensorops.Array, error)
}

// ClassNamer is a dataset whose classes have names.
type ClassNamer interface {
	// ClassNames returns the names of the classes by id; nil: none.
	ClassNames() []string
}

// part is a dataset that is a part of another one, whose optional methods apply to it, too.
type part interface{ whole() Dataset }

// find finds an optional interface of a dataset, or of the dataset of which it is a part.
func find[T any](d Dataset) (found T, ok bool) {
	for {
		if found, ok = d.(T); ok {
			return found, true
		}
		p, isPart := d.(part)
		if !isPart {
			return found, false
		}
		d = p.whole()
	}
}

// ClassNames returns the names of a dataset's classes by id; nil: none.
func ClassNames(d Dataset) []string {
	if c, ok := find[ClassNamer](d); ok {
		return c.ClassNames()
	}
	return nil
}
