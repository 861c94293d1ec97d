package optest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// builder records a case's list: inputs, operations, and what is checked.
type builder struct {
	*tensorops.List

	seed    uint64
	types   []tensorops.DType // of normal, garbage and framed by turns; nil: float32
	typed   int               // how many of them there are
	inputs  uint64            // so far; each has a stream of random numbers
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
	case tensorops.BFloat16:
		return tensorops.HostBytes(make([]uint16, t.Len()))
	case tensorops.Uint8:
		return make([]byte, t.Len())
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

// either makes a tensor of given values, of the type whose turn it is.
func (b *builder) either(values []float32, dims ...int) tensorops.Tensor {
	if len(b.types) == 0 {
		return b.floats(values, dims...)
	}
	b.typed++
	if b.types[b.typed%len(b.types)] == tensorops.Float32 {
		return b.floats(values, dims...)
	}
	bits := make([]uint16, len(values))
	for i, v := range values {
		bits[i] = tensorops.ToBFloat16(v)
	}
	return b.uploaded(tensorops.BFloat16, tensorops.HostBytes(bits), dims)
}

// inSingle runs f with float32 for all.
func (b *builder) inSingle(f func()) {
	types := b.types
	b.types = nil
	f()
	b.types = types
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

// deviates are the standard normal deviates that large inputs are taken from. To draw each input's would take longer than
// what most devices compute of them.
var deviates = sync.OnceValue(func() *[numDeviates]float32 {
	source := rand.New(rand.NewPCG(1, 2))
	all := new([numDeviates]float32)
	for i := range all {
		all[i] = float32(source.NormFloat64())
	}
	return all
})

// numDeviates is a power of two, so that every odd stride comes by all of them.
const numDeviates = 1 << 17

// limitDrawn is how many deviates an input may have that draws its own.
const limitDrawn = 4096

// numbers makes n normal deviates. Each large input begins elsewhere among the deviates and has a stride of its own, so that
// no two of a case have the same ones beside each other. Small ones draw their own: the library's numbers are four times as
// fast as the engine's, which any element could be asked of alone.
func (b *builder) numbers(n int, mean, deviation float64) []float32 {
	values, key := make([]float32, n), b.key()
	if n <= limitDrawn {
		source := rand.New(rand.NewPCG(uint64(key.K0), uint64(key.K1)))
		for i := range values {
			values[i] = float32(mean + deviation*source.NormFloat64())
		}
		return values
	}
	from := deviates()
	at, stride := uint64(key.K0), uint64(key.K1)|1
	for i := range values {
		values[i] = float32(mean + deviation*float64(from[at%numDeviates]))
		at += stride
	}
	return values
}

// normal makes an input of standard normal deviates.
func (b *builder) normal(dims ...int) tensorops.Tensor { return b.spread(0, 1, dims...) }

// spread makes an input of normal deviates.
func (b *builder) spread(mean, deviation float64, dims ...int) tensorops.Tensor {
	return b.either(b.numbers(product(dims), mean, deviation), dims...)
}

// single makes an input of standard normal deviates that is float32 in every case.
func (b *builder) single(dims ...int) tensorops.Tensor {
	return b.floats(b.numbers(product(dims), 0, 1), dims...)
}

// unset is memory full of NaN.
func unset(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(math.NaN())
	}
	return values
}

// garbage32 makes an output full of NaN that is float32 in every case.
func (b *builder) garbage32(dims ...int) tensorops.Tensor {
	return b.floats(unset(product(dims)), dims...)
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
	return b.either(unset(product(dims)), dims...)
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
	whole = b.either(values, rows, wide)
	return whole, whole.Columns(before, before+cols)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// packed makes room for a packed operand, full of NaN.
func (b *builder) packed(n int, bf16 bool) tensorops.Tensor {
	if !bf16 {
		return b.garbage32(n)
	}
	return b.half(n)
}

// half makes a bfloat16 output full of NaN.
func (b *builder) half(dims ...int) tensorops.Tensor {
	t := b.Alloc(tensorops.BFloat16, dims...)
	b.Fill(t, math.NaN())
	b.tensors = append(b.tensors, t)
	return t
}
