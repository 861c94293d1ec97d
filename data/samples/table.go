package samples

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// table is a dataset in memory, stored by field.
type table struct {
	columns   []*column
	n         int
	names     []string // names of the classes
	settled   Options  // options that read other files in the same way
	described []Field
}

// column holds one field of all samples.
type column struct {
	Field
	float   []float32
	ints    []int32
	varying bool
	// If shapes are found sample by sample: the number of samples and, for fields whose shape may
	// differ, the start and the dimensions of each.
	n      int
	starts []int
	dims   []int32
}

// took records the shape of a sample whose numbers start at an index.
func (c *column) took(shape []int, start int) error {
	c.n++
	if c.n == 1 {
		c.Shape = shape
	}
	if !c.varying {
		if !slices.Equal(shape, c.Shape) {
			return fmt.Errorf("%w: the shape is %v, but earlier samples have %v: fix it, or add the key to data.varying", ErrShape, shape,
				c.Shape)
		}
		return nil
	}
	if len(shape) != len(c.Shape) {
		return fmt.Errorf("%w: arrays are nested %d deep, but %d deep in earlier samples: their lengths may differ, their nesting may not",
			ErrShape, len(shape),
			len(c.Shape))
	}
	c.starts = append(c.starts, start)
	for _, n := range shape {
		c.dims = append(c.dims, int32(n))
	}
	return nil
}

// widen determines which dimensions differ: always the first, which may differ in other files, and
// others if they differ here.
func (c *column) widen() {
	if !c.varying || len(c.Shape) == 0 {
		return
	}
	rank := len(c.Shape)
	wide := slices.Clone(c.Shape)
	for i, n := range c.dims {
		if i%rank == 0 || int(n) != c.Shape[i%rank] {
			wide[i%rank] = -1
		}
	}
	c.Shape = wide
}

func (c *column) len() int { return len(c.float) + len(c.ints) }

// sample returns a view of one sample's part.
func (c *column) sample(i int) tensorops.Array {
	a := tensorops.Array{Shape: slices.Clone(c.Shape)}
	var from, to int
	if c.varying {
		rank := len(c.Shape)
		for d, n := range c.dims[i*rank : (i+1)*rank] {
			a.Shape[d] = int(n)
		}
		from, to = c.starts[i], c.len()
		if i+1 < len(c.starts) {
			to = c.starts[i+1]
		}
	} else {
		size := 1
		for _, n := range c.Shape {
			size *= n
		}
		from, to = i*size, (i+1)*size
	}
	if c.DType == tensorops.Int32 {
		a.Int = c.ints[from:to:to]
	} else {
		a.Float = c.float[from:to:to]
	}
	return a
}

// finish describes the fields after all samples are read.
func (t *table) finish() error {
	for _, c := range t.columns {
		t.described = append(t.described, c.Field)
	}
	return CheckFields(t.described)
}

func (t *table) Fields() []Field      { return t.described }
func (t *table) Len() int             { return t.n }
func (t *table) ClassNames() []string { return t.names }
func (t *table) settle(o Options) Options {
	o.Features, o.Targets, o.Classes, o.ClassNames = t.settled.Features, t.settled.Targets, t.settled.Classes, t.settled.ClassNames
	return o
}

func (t *table) At(i int) (Sample, error) {
	if err := inRange(i, t.n); err != nil {
		return nil, err
	}
	s := make(Sample, len(t.columns))
	for j, c := range t.columns {
		s[j] = c.sample(i)
	}
	return s, nil
}
