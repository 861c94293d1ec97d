package optest

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// builder records a case's list: inputs, operations, and what is checked.
type builder struct {
	*tensorops.List

	seed    uint64
	inputs  uint64 // so far; each has a stream of random numbers
	tensors []tensorops.Tensor
	outputs []*output
}

func newBuilder(s tensorops.Stream, name string) *builder {
	return &builder{List: s.NewList(), seed: rng.StringStream(name)}
}

// run submits the list and returns the outputs.
func (b *builder) run(s tensorops.Stream) ([]*output, error) {
	for _, t := range b.tensors {
		b.Free(t)
	}
	return b.outputs, tensorops.Run(s, b.List)
}

// check fetches t as it is at this point of the list, to be compared.
func (b *builder) check(t tensorops.Tensor, format string, args ...any) *output {
	o := &output{
		name:   fmt.Sprintf(format, args...),
		dtype:  t.DType(),
		shape:  t.Shape(),
		host:   hostMemory(t),
		factor: 1,
	}
	b.Fetch(o.host, t)
	b.outputs = append(b.outputs, o)
	return o
}

// hostMemory makes room on the host for a tensor's elements, aligned for them.
func hostMemory(t tensorops.Tensor) []byte {
	switch t.DType() {
	case tensorops.Float64:
		return tensorops.HostBytes(make([]float64, t.Len()))
	case tensorops.Int32:
		return tensorops.HostBytes(make([]int32, t.Len()))
	default:
		return tensorops.HostBytes(make([]float32, t.Len()))
	}
}

// uploaded makes a tensor that holds what the host has.
func (b *builder) uploaded(dtype tensorops.DType, host []byte, dims []int) tensorops.Tensor {
	t := b.Alloc(dtype, dims...)
	b.Upload(t, host)
	b.tensors = append(b.tensors, t)
	return t
}

// floats makes a float32 tensor of given values.
func (b *builder) floats(values []float32, dims ...int) tensorops.Tensor {
	return b.uploaded(tensorops.Float32, tensorops.HostBytes(values), dims)
}

// ints makes an int32 tensor of given values.
func (b *builder) ints(values []int32, dims ...int) tensorops.Tensor {
	return b.uploaded(tensorops.Int32, tensorops.HostBytes(values), dims)
}

// key is the key of the next input's random numbers.
func (b *builder) key() rng.Key {
	b.inputs++
	return rng.NewKey(b.seed, b.inputs)
}

// numbers draws n normal deviates.
func (b *builder) numbers(n int, mean, deviation float64) []float32 {
	values := make([]float32, n)
	rng.Normal(values, b.key(), 0, mean, deviation)
	return values
}

// normal makes an input of standard normal deviates.
func (b *builder) normal(dims ...int) tensorops.Tensor { return b.spread(0, 1, dims...) }

// spread makes an input of normal deviates.
func (b *builder) spread(mean, deviation float64, dims ...int) tensorops.Tensor {
	return b.floats(b.numbers(product(dims), mean, deviation), dims...)
}

// tokens makes random ids below vocabulary.
func (b *builder) tokens(vocabulary int, dims ...int) tensorops.Tensor {
	key := b.key()
	ids := make([]int32, product(dims))
	for i := range ids {
		ids[i] = int32(rng.Intn(key, 0, uint64(i), uint64(vocabulary)))
	}
	return b.ints(ids, dims...)
}

// garbage makes an output full of NaN.
func (b *builder) garbage(dims ...int) tensorops.Tensor {
	values := make([]float32, product(dims))
	for i := range values {
		values[i] = float32(math.NaN())
	}
	return b.floats(values, dims...)
}

// garbage64 makes a float64 output full of NaN.
func (b *builder) garbage64(dims ...int) tensorops.Tensor {
	values := make([]float64, product(dims))
	for i := range values {
		values[i] = math.NaN()
	}
	return b.uploaded(tensorops.Float64, tensorops.HostBytes(values), dims)
}

// framed makes a matrix of standard normal deviates with columns of NaN before
// and after, and the view between them.
func (b *builder) framed(rows, cols int) (whole, view tensorops.Tensor) {
	const before, after = 3, 2
	wide := before + cols + after
	values := b.numbers(rows*wide, 0, 1)
	for i := range values {
		if j := i % wide; j < before || j >= before+cols {
			values[i] = float32(math.NaN())
		}
	}
	whole = b.floats(values, rows, wide)
	return whole, whole.Columns(before, before+cols)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
