package cpu_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// groupedForm is a form of the products of groups.
type groupedForm struct{ half, transB, accumulate, bias, packed bool }

var groupedForms = []groupedForm{{transB: true, bias: true}, {accumulate: true}, {}, {half: true, transB: true}, {half: true, bias: true},
	{transB: true, bias: true, packed: true}, {accumulate: true, packed: true}, {half: true, transB: true, packed: true},
	{half: true, bias: true, packed: true}}

// TestGroupedIsMatMul: the rows of each expert have the bits of a product of theirs alone, whether one core computes them
// or all do, whoever packs its matrix, on every path and in both types.
func TestGroupedIsMatMul(t *testing.T) {
	// 70 rows are cut by columns, 250 and 400 by rows after their matrices are packed.
	counts := []int{3, 0, 400, 1, 70, 250}
	for _, path := range paths() {
		for _, form := range groupedForms {
			t.Run(fmt.Sprintf("%s %+v", path, form), func(t *testing.T) { checkGrouped(t, path, form, counts, 200, 150) })
		}
	}
}

// TestGroupedLarge: so do matrices that have not all room where they are packed, or not even one of them.
func TestGroupedLarge(t *testing.T) {
	if raceDetector {
		t.Skip("the sizes matter, and what races does not depend on them")
	}
	for _, form := range []groupedForm{{transB: true}, {half: true}} {
		for _, size := range []int{1024, 2080} {
			t.Run(fmt.Sprintf("%+v %d", form, size), func(t *testing.T) {
				checkGrouped(t, paths()[0], form, slices.Repeat([]int{390}, 1+4*1024/size), size, size)
			})
		}
	}
}

func checkGrouped(t *testing.T, path string, form groupedForm, counts []int, n, k int) {
	offsets := []int32{0}
	for _, c := range counts {
		offsets = append(offsets, offsets[len(offsets)-1]+int32(c))
	}
	rows := int(offsets[len(counts)])
	drawn := func(stream uint64, n int) []byte {
		v := make([]float32, n)
		rng.Normal(v, rng.NewKey(9, stream), 0, 0, 1)
		return tensorops.HostBytes(v)
	}
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
	bias, packed := of(tensorops.Float32, 5, len(counts), n), l.Alloc(inner, len(counts)*tensorops.PackedLen(k, n))
	o := tensorops.MatMulOpts{TransB: form.transB, Accumulate: form.accumulate, BF16: form.half}
	all := tensorops.GroupedOpts{TransB: form.transB, Accumulate: form.accumulate, BF16: form.half}
	if form.bias {
		all.Bias = bias
	}
	if form.packed {
		all.Packed = packed
		l.PackExperts(packed, b, len(counts), form.transB, form.half)
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
	for _, x := range []tensorops.Tensor{at, a, b, c, alone, dw, dwAlone, bias, packed} {
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
}
