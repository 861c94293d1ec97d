package samples

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/tensorops"
)

// idx is a dataset of IDX files, which stay in memory unchanged.
type idx struct {
	images, labels []*idxFile // labels may be empty
	starts         []int      // index of each file's first sample
	n              int
	scale          float64
	fields         []Field
}

func openIDX(o Options) (*idx, error) {
	if n := len(o.Labels); n > 0 && n != len(o.Files) {
		return nil, fmt.Errorf("%w: there are %d files of samples, but %d in data.labels: each file of samples needs one file of labels",
			ErrOptions, len(o.Files), n)
	}
	x := &idx{scale: o.Scale}
	m := newMemory()
	largest := -1
	for i, name := range o.Files {
		images, err := readIDX(name, m)
		if err != nil {
			return nil, err
		}
		if err := x.addImages(images); err != nil {
			return nil, err
		}
		if len(o.Labels) == 0 {
			continue
		}
		labels, err := readIDX(o.Labels[i], m)
		if err != nil {
			return nil, err
		}
		most, err := x.addLabels(labels, images, o.Classes)
		if err != nil {
			return nil, err
		}
		largest = max(largest, most)
	}
	x.fields = []Field{{Name: o.featureField(), DType: tensorops.Float32, Shape: x.images[0].shape}}
	if len(x.labels) > 0 {
		x.fields = append(x.fields, Field{Name: o.labelField(), DType: tensorops.Int32, Shape: x.labels[0].shape,
			Classes: orElse(o.Classes, largest+1)})
	}
	return x, CheckFields(x.fields)
}

// addImages adds a file of samples, and checks floating-point numbers.
func (x *idx) addImages(f *idxFile) error {
	if len(x.images) == 0 && x.scale == 0 {
		if x.scale = 1; f.code == unsignedByte {
			x.scale = 1.0 / 255
		}
	}
	if err := x.same(x.images, f); err != nil {
		return err
	}
	for i := range f.n * f.size() {
		if idxTypes[f.code].integer {
			break
		}
		if v := f.element(i); math.IsNaN(v) || math.IsInf(v, 0) {
			return f.fail(f.place(i), fmt.Errorf("%w: sample %d has %g, which is not a finite number", ErrFormat, i/f.size(), v))
		} else if _, ok := scaled(v, x.scale); !ok {
			return f.fail(f.place(i), fmt.Errorf("%w: sample %d has %g, which is too large for float32", ErrFormat, i/f.size(), v))
		}
	}
	x.images, x.starts, x.n = append(x.images, f), append(x.starts, x.n), x.n+f.n
	return nil
}

// addLabels adds the labels of a file of samples, and returns the largest one.
func (x *idx) addLabels(f, of *idxFile, classes int) (largest int, err error) {
	if err := x.same(x.labels, f); err != nil {
		return 0, err
	}
	if !idxTypes[f.code].integer {
		return 0, f.fail(2, fmt.Errorf("%w: the labels have type %02x: they must be integers, of type 08, 09, 0b or 0c", ErrFormat, f.code))
	}
	if f.n != of.n {
		return 0, f.fail(4, fmt.Errorf("%w: there are %d labels, but %s has %d samples: the two files do not belong together", ErrFormat, f.n,
			strictjson.Plain(of.name), of.n))
	}
	for i := range f.n * f.size() {
		v := int(f.element(i))
		if err := classInRange(float64(v), classes); err != nil {
			return 0, f.fail(f.place(i), fmt.Errorf("the label of sample %d: %w", i/f.size(), err))
		}
		largest = max(largest, v)
	}
	x.labels = append(x.labels, f)
	return largest, nil
}

// same checks that a file has the same kind of samples as those before it.
func (x *idx) same(before []*idxFile, f *idxFile) error {
	if len(before) == 0 {
		return nil
	}
	first := before[0]
	if f.code != first.code || !slices.Equal(f.shape, first.shape) {
		return f.fail(0,
			fmt.Errorf("%w: the samples have type %02x and shape %v, but those of %s have type %02x and shape %v: use files of the same kind",
				ErrShape, f.code, f.shape, strictjson.Plain(first.name), first.code, first.shape))
	}
	return nil
}

func (x *idx) Fields() []Field { return x.fields }
func (x *idx) Len() int        { return x.n }

func (x *idx) settle(o Options) Options {
	if len(x.labels) > 0 {
		o.Classes = x.fields[1].Classes
	}
	return o
}

func (x *idx) At(i int) (Sample, error) {
	if err := inRange(i, x.n); err != nil {
		return nil, err
	}
	file := sort.Search(len(x.starts), func(k int) bool { return x.starts[k] > i }) - 1
	i -= x.starts[file]
	f := x.images[file]
	size := f.size()
	image := tensorops.Array{Shape: slices.Clone(f.shape), Float: make([]float32, size)}
	kind := idxTypes[f.code]
	for k := range image.Float {
		image.Float[k] = float32(kind.read(f.raw[(i*size+k)*kind.bytes:]) * x.scale)
	}
	if len(x.labels) == 0 {
		return Sample{image}, nil
	}
	f = x.labels[file]
	size = f.size()
	label := tensorops.Array{Shape: slices.Clone(f.shape), Int: make([]int32, size)}
	for k := range label.Int {
		label.Int[k] = int32(f.element(i*size + k))
	}
	return Sample{image, label}, nil
}
