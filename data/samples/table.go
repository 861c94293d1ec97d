package samples

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// table is a dataset in memory, its fields one by one.
type table struct {
	columns   []*column
	n         int
	names     []string // of the classes
	settled   Options  // which read other files alike
	described []Field
}

// column holds one field of all samples.
type column struct {
	Field
	float   []float32
	ints    []int32
	varying bool
	// Where shapes are found sample by sample: how many there are, and of fields whose shape
	// may differ where each begins, and its dimensions.
	n      int
	starts []int
	dims   []int32
}

// took notes the shape of a sample whose numbers begin at one of them.
func (c *column) took(shape []int, start int) error {
	c.n++
	if c.n == 1 {
		c.Shape = shape
	}
	if !c.varying {
		if !slices.Equal(shape, c.Shape) {
			return fmt.Errorf("%w: the shape is %v, but that of the samples before is %v: mend it, or name the key in data.varying", ErrShape, shape,
				c.Shape)
		}
		return nil
	}
	if len(shape) != len(c.Shape) {
		return fmt.Errorf("%w: arrays nest %d deep, but %d deep in the samples before: lengths may differ, not that", ErrShape, len(shape),
			len(c.Shape))
	}
	c.starts = append(c.starts, start)
	for _, n := range shape {
		c.dims = append(c.dims, int32(n))
	}
	return nil
}

// widen says which dimensions differ: the first, which in other files may, and others if
// they do here.
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

// sample is a view of one sample's part.
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

// finish describes the fields once all samples are there.
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
