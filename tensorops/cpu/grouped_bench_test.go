package cpu_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// BenchmarkGrouped times products of the rows of experts beside one dense product of as many operations, in turns: an
// iteration is one of each. It reports the median of the turns' ratios, "by-dense".
func BenchmarkGrouped(b *testing.B) {
	const n, k = 512, 512
	for _, rows := range []int{4096, 16384} {
		for _, experts := range []int{8, 32, 128} {
			for _, skewed := range []bool{false, true} {
				for _, half := range []bool{false, true} {
					g := &groupedBench{offsets: loads(rows, experts, skewed), rows: rows, n: n, k: k, half: half}
					b.Run(fmt.Sprintf("rows=%d/experts=%d/skewed=%v/bf16=%v", rows, experts, skewed, half), g.run)
				}
			}
		}
	}
}

// loads are the offsets of experts with equal loads, or with half of the rows in the first one, a quarter in the second, and so on.
func loads(rows, experts int, skewed bool) []int32 {
	offsets := []int32{0}
	left := rows
	for e := range experts {
		n := left / (experts - e)
		if skewed && e < experts-1 {
			n = left / 2
		}
		left -= n
		offsets = append(offsets, int32(rows-left))
	}
	return offsets
}

// groupedBench is products of the same operations.
type groupedBench struct {
	offsets    []int32
	rows, n, k int
	half       bool

	s                  tensorops.Stream
	at, x, y, drows    tensorops.Tensor
	w, dw, one, done   tensorops.Tensor
	packed, packedBack tensorops.Tensor
	onePacked          [2]tensorops.Tensor // for the same products
}

func (g *groupedBench) run(b *testing.B) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	g.s = dev.NewStream("grouped")
	defer g.s.Close()
	g.allocate(b)
	for _, form := range []struct {
		name           string
		grouped, dense func(l *tensorops.List)
	}{
		{"forward", g.forward(tensorops.Tensor{}), g.denseForward(tensorops.Tensor{})},
		{"forward, packed", g.forward(g.packed), g.denseForward(g.onePacked[0])},
		{"input gradient", g.inputGrad(tensorops.Tensor{}), g.denseInputGrad(tensorops.Tensor{})},
		{"input gradient, packed", g.inputGrad(g.packedBack), g.denseInputGrad(g.onePacked[1])},
		{"weight gradient", func(l *tensorops.List) { l.GroupedWeightGrad(g.dw, g.y, g.x, g.at, g.half) }, func(l *tensorops.List) {
			l.MatMul(g.done, g.y, g.x, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: g.half})
		}},
	} {
		b.Run(form.name, func(b *testing.B) {
			var took [2][]float64
			var ratios []float64
			for b.Loop() {
				for i, record := range []func(l *tensorops.List){form.grouped, form.dense} {
					l := g.s.NewList()
					record(l)
					began := time.Now()
					if err := tensorops.Run(g.s, l); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], float64(time.Since(began).Microseconds()))
				}
				turn := len(ratios)
				ratios = append(ratios, took[0][turn]/took[1][turn])
			}
			b.ReportMetric(median(took[0]), "grouped-us")
			b.ReportMetric(median(took[1]), "dense-us")
			b.ReportMetric(median(ratios), "by-dense")
		})
	}
}

// allocate fills the operands with random numbers: zeros take less power.
func (g *groupedBench) allocate(b *testing.B) {
	l := g.s.NewList()
	inner, experts := tensorops.Float32, len(g.offsets)-1
	if g.half {
		inner = tensorops.BFloat16
	}
	drawn := func(dtype tensorops.DType, dims ...int) tensorops.Tensor {
		t, v := l.Alloc(dtype, dims...), l.Alloc(tensorops.Float32, dims...)
		numbers := make([]float32, v.Len())
		rng.Normal(numbers, rng.NewKey(1, 1), 0, 0, 1)
		l.Upload(v, tensorops.HostBytes(numbers))
		l.Copy(t, v)
		l.Free(v)
		return t
	}
	g.at = l.Alloc(tensorops.Int32, len(g.offsets))
	l.Upload(g.at, tensorops.HostBytes(g.offsets))
	g.x, g.y, g.drows = drawn(inner, g.rows, g.k), drawn(inner, g.rows, g.n), drawn(tensorops.Float32, g.rows, g.k)
	g.w, g.dw = drawn(tensorops.Float32, experts, g.n, g.k), drawn(tensorops.Float32, experts, g.n, g.k)
	g.one, g.done = drawn(tensorops.Float32, g.n, g.k), drawn(tensorops.Float32, g.n, g.k)
	size := tensorops.PackedLen(g.k, g.n)
	g.packed, g.packedBack = l.Alloc(inner, experts*size), l.Alloc(inner, experts*size)
	l.PackExperts(g.packed, g.w, experts, true, g.half)
	l.PackExperts(g.packedBack, g.w, experts, false, g.half)
	for i := range g.onePacked {
		g.onePacked[i] = l.Alloc(inner, size)
		l.Pack(g.onePacked[i], g.one, i == 0, g.half)
	}
	if err := tensorops.Run(g.s, l); err != nil {
		b.Fatal(err)
	}
}

func (g *groupedBench) forward(packed tensorops.Tensor) func(l *tensorops.List) {
	return func(l *tensorops.List) {
		l.GroupedMatMul(g.y, g.x, g.w, g.at, tensorops.GroupedOpts{TransB: true, BF16: g.half, Packed: packed})
	}
}

func (g *groupedBench) denseForward(packed tensorops.Tensor) func(l *tensorops.List) {
	return func(l *tensorops.List) {
		l.MatMul(g.y, g.x, g.one, tensorops.MatMulOpts{TransB: true, BF16: g.half, Packed: packed})
	}
}

func (g *groupedBench) inputGrad(packed tensorops.Tensor) func(l *tensorops.List) {
	return func(l *tensorops.List) {
		l.GroupedMatMul(g.drows, g.y, g.w, g.at, tensorops.GroupedOpts{BF16: g.half, Packed: packed})
	}
}

func (g *groupedBench) denseInputGrad(packed tensorops.Tensor) func(l *tensorops.List) {
	return func(l *tensorops.List) {
		l.MatMul(g.drows, g.y, g.one, tensorops.MatMulOpts{BF16: g.half, Packed: packed})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
