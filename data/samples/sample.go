package samples

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// Field describes one value of every sample.
type Field struct {
	Name    string
	DType   tensorops.DType
	Shape   []int // of one sample; -1: differs from sample to sample
	Classes int   // of a label, whose ids are 0 … Classes−1; 0: not a label
}

// Sample is one sample's fields, in the order of Dataset.Fields.
type Sample []tensorops.Array

// Dataset is data with a known number of samples. Its methods are safe for concurrent use.
type Dataset interface {
	// Fields describes the samples. It always returns the same.
	Fields() []Field
	// Len is the number of samples.
	Len() int
	// At returns sample i, from 0 to Len−1, the same whenever it is asked for. Neither the
	// dataset nor who asks changes the sample later.
	At(i int) (Sample, error)
}

// Batcher is a dataset that makes microbatches itself, such as one that pads samples of
// different shapes. Without it Collate makes them.
type Batcher interface {
	// Batch stacks samples: each array's first dimension is the number of samples. The same
	// samples must give the same arrays. It is safe for concurrent use.
	Batch(samples []Sample) ([]tensorops.Array, error)
}

// ClassNamer is a dataset whose classes have names.
type ClassNamer interface {
	// ClassNames are the names of the classes by their ids; nil: they have none.
	ClassNames() []string
}

// part is a dataset that is a part of another one, which knows more about it.
type part interface{ whole() Dataset }

// find looks for what a dataset can do beside being read, in it and in what it is a part of.
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

// ClassNames are the names of a dataset's classes by their ids; nil: they have none.
func ClassNames(d Dataset) []string {
	if c, ok := find[ClassNamer](d); ok {
		return c.ClassNames()
	}
	return nil
}
