package cpu_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestGroupedIsMatMul: the rows of each expert have the bits of a product of theirs alone, whether one core computes it
// or all do, on every path and in both types.
func TestGroupedIsMatMul(t *testing.T) {
	counts := []int{3, 0, 400, 1, 70}
	const n, k, rows = 200, 150, 474 // 12 million products for the largest expert, which is more than one core takes
	offsets := []int32{0}
	for _, c := range counts {
		offsets = append(offsets, offsets[len(offsets)-1]+int32(c))
	}
	drawn := func(stream uint64, n int) []byte {
		v := make([]float32, n)
		rng.Normal(v, rng.NewKey(9, stream), 0, 0, 1)
		return tensorops.HostBytes(v)
	}
	for _, path := range paths() {
		for _, form := range []struct{ half, transB, accumulate, bias bool }{{false, true, false, true}, {false, false, true, false},
			{false, false, false, false}, {true, true, false, false}, {true, false, false, true}} {
			t.Run(fmt.Sprintf("%s %+v", path, form), func(t *testing.T) {
				s := open(t, 2, path).NewStream("grouped")
				defer s.Close()
				l := s.NewList()
				inner := tensorops.Float32
				if form.half {
					inner = tensorops.BFloat16
				}
				of := func(dtype tensorops.DType, stream uint64, dims ...int) tensorops.Tensor {
					x, y := l.Alloc(tensorops.Float32, dims...), l.Alloc(dtype, dims...)
					l.Upload(x, drawn(stream, x.Len()))
					l.Copy(y, x)
					l.Free(x)
					return y
				}
				at := l.Alloc(tensorops.Int32, len(offsets))
				l.Upload(at, tensorops.HostBytes(offsets))
				a, b := of(inner, 1, rows, k), of(tensorops.Float32, 2, len(counts), k, n)
				if form.transB {
					b = b.View(len(counts), n, k)
				}
				c, alone := of(inner, 3, rows, n), of(inner, 3, rows, n)
				dw, dwAlone := of(tensorops.Float32, 4, len(counts), n, k), of(tensorops.Float32, 4, len(counts), n, k)
				bias := of(tensorops.Float32, 5, len(counts), n)
				o := tensorops.MatMulOpts{TransB: form.transB, Accumulate: form.accumulate, BF16: form.half}
				all := tensorops.GroupedOpts{TransB: form.transB, Accumulate: form.accumulate, BF16: form.half}
				if form.bias {
					all.Bias = bias
				}
				l.GroupedMatMul(c, a, b, at, all)
				l.GroupedWeightGrad(dw, c, a, at, form.half)
				each := b.Rows() / len(counts)
				for e := range counts {
					from, to := int(offsets[e]), int(offsets[e+1])
					if form.bias {
						o.Bias = bias.RowRange(e, e+1)
					}
					l.MatMul(alone.RowRange(from, to), a.RowRange(from, to), b.RowRange(e*each, (e+1)*each), o)
					l.MatMul(dwAlone.RowRange(e*n, (e+1)*n), alone.RowRange(from, to), a.RowRange(from, to),
						tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: form.half})
				}
				var got [4][]byte
				for i, x := range []tensorops.Tensor{c, alone, dw, dwAlone} {
					got[i] = make([]byte, x.StoredBytes())
					l.Fetch(got[i], x)
				}
				for _, x := range []tensorops.Tensor{at, a, b, c, alone, dw, dwAlone, bias} {
					l.Free(x)
				}
				if err := tensorops.Run(s, l); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got[0], got[1]) {
					t.Error("a grouped product has other bits than products alone")
				}
				if !bytes.Equal(got[2], got[3]) {
					t.Error("a grouped gradient of weights has other bits than products alone")
				}
			})
		}
	}
}
