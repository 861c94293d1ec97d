//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// TestUsesAreWhole: it is known what is done with bfloat16 for each operand of each operation
// that has a launcher. Joiners look behind the first operation, so they have to take it.
func TestUsesAreWhole(t *testing.T) {
	for _, kind := range tensorops.Kinds() {
		known, ok := uses[kind]
		if has := launchers[kind] != nil || joiners[kind] != nil; has != ok {
			t.Errorf("%v has a launcher: %v, uses: %v", kind, has, ok)
		}
		o := tensorops.Op{Kind: kind}
		if operands := strings.Count(o.String(), "=none"); ok && len(known) != operands {
			t.Errorf("%v has %d operands and %d uses", kind, operands, len(known))
		}
		if joiners[kind] != nil && (slices.Contains(known, reads) || slices.Contains(known, writes)) {
			t.Errorf("%v is joined, and its launcher does not take bfloat16", kind)
		}
	}
}

// TestUnknownUse: bfloat16 is refused where it is not known what is done with it.
func TestUnknownUse(t *testing.T) {
	arena := tensorops.NewHostMemory(0).NewArena("unknown")
	x, err := tensorops.NewTensor(arena, tensorops.BFloat16, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	for _, test := range []struct {
		kind    tensorops.Kind
		operand int
		wide    bool
		err     error
	}{
		{tensorops.KindGELU, 1, false, nil},
		{tensorops.KindAttention, 1, true, nil},
		{tensorops.KindAttention, 4, false, tensorops.ErrUnsupported},
		{tensorops.KindGELU, 5, false, tensorops.ErrUnsupported},
		{tensorops.KindCall, 0, false, tensorops.ErrUnsupported},
	} {
		o := tensorops.Op{Kind: test.kind}
		o.T[test.operand] = x
		if wide, err := inFloat32(&o); wide != test.wide || !errors.Is(err, test.err) {
			t.Errorf("%v, operand %d: in float32 %v, error %v", test.kind, test.operand, wide, err)
		}
	}
}

// TestReadsInPlace: cuBLASLt reads and writes bfloat16 where it lies, as far as it lies at
// multiples of 16 bytes and a bias is of that type too, and the bits are those of rounded copies.
func TestReadsInPlace(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	s := d.NewStream("in place")
	const rows, n = 6, 24
	a, b := make([]float32, rows*n), make([]float32, n*n)
	rng.Normal(a, rng.NewKey(4, 1), 0, 0, 1)
	rng.Normal(b, rng.NewKey(4, 2), 0, 0, 1)
	// matrix is a view of columns of a wider matrix, from the first on, that are what values
	// are in a type.
	matrix := func(list *tensorops.List, dtype tensorops.DType, values []float32, rows, wide, first int) (whole, view tensorops.Tensor) {
		x := list.Alloc(tensorops.Float32, rows, n)
		list.Upload(x, tensorops.HostBytes(values))
		whole = list.Alloc(dtype, rows, wide)
		view = whole.Columns(first, first+n)
		list.Copy(view, x)
		list.Free(x)
		return whole, view
	}
	type form struct {
		dtype       tensorops.DType
		wide, first int
		bias, half  bool // half: it is bfloat16
	}
	product := func(f form) (bits []uint16, launches int64) {
		list := s.NewList()
		wholeA, viewA := matrix(list, f.dtype, a, rows, f.wide, f.first)
		wholeB, viewB := matrix(list, f.dtype, b, n, f.wide, f.first)
		o := tensorops.MatMulOpts{BF16: true, TransB: true}
		var bias tensorops.Tensor
		if f.bias {
			of := tensorops.Float32
			if f.half {
				of = tensorops.BFloat16
			}
			bias = list.Alloc(of, n)
			list.Fill(bias, 1)
			o.Bias = bias
		}
		c := list.Alloc(f.dtype, rows, n)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		before, products := l.Calls("cuLaunchKernel"), l.Calls("cublasLtMatmul")
		list = s.NewList()
		list.MatMul(c, viewA, viewB, o)
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		launches = l.Calls("cuLaunchKernel") - before
		if n := l.Calls("cublasLtMatmul") - products; n != 1 {
			t.Errorf("%+v: %d products of the library's", f, n)
		}
		bits = make([]uint16, c.Len())
		list = s.NewList()
		rounded := list.Alloc(tensorops.BFloat16, rows, n)
		list.Copy(rounded, c)
		list.Fetch(tensorops.HostBytes(bits), rounded)
		for _, x := range []tensorops.Tensor{wholeA, wholeB, bias, c, rounded} {
			list.Free(x)
		}
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return bits, launches
	}
	for _, bias := range []struct{ is, half bool }{{false, false}, {true, false}, {true, true}} {
		want, _ := product(form{tensorops.Float32, n, 0, bias.is, false})
		after := int64(0) // the sum with a float32 bias is rounded by a kernel
		if bias.is && !bias.half {
			after = 1
		}
		for _, test := range []struct {
			what        string
			wide, first int
			launches    int64
		}{
			{"whole matrices", n, 0, 0},
			{"columns at multiples of 16 bytes", n + 16, 8, 0},
			{"columns that begin between them", n + 16, 3, 2},
			{"rows that begin between them", n + 5, 0, 2},
		} {
			got, launches := product(form{tensorops.BFloat16, test.wide, test.first, bias.is, bias.half})
			if !slices.Equal(got, want) || launches != test.launches+after {
				t.Errorf("%s, bias %+v: %d launches beside the product, want %d; the bits of copies: %v",
					test.what, bias, launches, test.launches+after, slices.Equal(got, want))
			}
		}
	}
}

// TestSumsBesideProducts: a bias's gradient is made along with the weight's, where the library can and
// what is summed lies as it reads it.
func TestSumsBesideProducts(t *testing.T) {
	l, path := stand(t)
	const rows, in, out = 40, 16, 24
	for _, test := range []struct {
		what     string
		dtype    tensorops.DType
		turned   bool // the weight is [out, in]
		first    int  // column that the product's dy begins with
		refuse   int32
		launches int64 // beside the product
	}{
		{"[in, out]", tensorops.BFloat16, false, 0, 0, 1},
		{"[out, in]", tensorops.BFloat16, true, 0, 0, 1},
		{"sums of another matrix", tensorops.BFloat16, false, 8, 0, 2},
		{"float32, which is rounded first", tensorops.Float32, false, 0, 0, 4},
		{"none of it", tensorops.BFloat16, false, 0, standin.RefuseSums, 2},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newDevice(t, path, Options{BLAS: path}).NewStream("sums")
			l.Refuse(test.refuse)
			defer l.Refuse(0)
			list := s.NewList()
			x, whole, other := list.Alloc(test.dtype, rows, in), list.Alloc(test.dtype, rows, out+8), list.Alloc(test.dtype, rows, out)
			shape := [2]int{in, out}
			if test.turned {
				shape = [2]int{out, in}
			}
			w, bias := list.Alloc(tensorops.Float32, shape[0], shape[1]), list.Alloc(tensorops.Float32, out)
			list.Fill(x, 0.5)
			list.Fill(whole, 0.25)
			list.Fill(other, 0.25)
			list.Fill(w, 1)
			list.Fill(bias, 3)
			if err := tensorops.Run(s, list); err != nil {
				t.Fatal(err)
			}
			launches, products := l.Calls("cuLaunchKernel"), l.Calls("cublasLtMatmul")
			list = s.NewList()
			a, b := x, other
			if test.first > 0 {
				b = whole.Columns(test.first, test.first+out)
			}
			if test.turned {
				a, b = b, a
			}
			list.MatMul(w, a, b, tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: true})
			list.ColSum(bias, other)
			if err := tensorops.Run(s, list); err != nil {
				t.Fatal(err)
			}
			launches, products = l.Calls("cuLaunchKernel")-launches, l.Calls("cublasLtMatmul")-products
			if launches != test.launches || products != 1 {
				t.Errorf("%d launches and %d products, want %d and 1", launches, products, test.launches)
			}
			for _, of := range []struct {
				t    tensorops.Tensor
				want float32
			}{{w, 1 + rows*0.5*0.25}, {bias, 3 + rows*0.25}} {
				got, err := fetched(s, of.t)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, slices.Repeat([]float32{of.want}, len(got))) {
					t.Errorf("%v: %v, want %v", of.t, got, of.want)
				}
			}
			for _, x := range []tensorops.Tensor{x, whole, other} {
				x.Release()
			}
		})
	}
}

// TestRoundsBesideProducts: the GELU of a product that is rounded is that of what was rounded.
func TestRoundsBesideProducts(t *testing.T) {
	_, path := stand(t)
	layer := func(blas string) []uint16 {
		s := newDevice(t, path, Options{BLAS: blas}).NewStream("layer")
		list := s.NewList()
		const n = 16
		x, w, bias := list.Alloc(tensorops.BFloat16, n, n), list.Alloc(tensorops.BFloat16, n, n), list.Alloc(tensorops.Float32, n)
		c, y, apart := list.Alloc(tensorops.BFloat16, n, n), list.Alloc(tensorops.BFloat16, n, n), list.Alloc(tensorops.BFloat16, n, n)
		list.Fill(x, 0.5)
		list.Fill(w, 0.25)
		list.Fill(bias, 0.01) // what it is added to has no room for it
		list.MatMul(c, x, w, tensorops.MatMulOpts{Bias: bias, BF16: true})
		list.GELU(y, c)
		list.Fill(apart, 0) // behind it no product: the GELU is one of its own
		list.GELU(apart, c)
		got, want := make([]uint16, n*n), make([]uint16, n*n)
		list.Fetch(tensorops.HostBytes(got), y)
		list.Fetch(tensorops.HostBytes(want), apart)
		for _, t := range []tensorops.Tensor{x, w, bias, c, y, apart} {
			list.Free(t)
		}
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("GELU behind the product %#x, on its own %#x", got[0], want[0])
		}
		return got
	}
	if own, library := layer(NoBLAS), layer(path); !slices.Equal(own, library) {
		t.Errorf("%#x by the device's own kernels, %#x by the library", own[0], library[0])
	}
}

// TestHalfInGraphs: what operations of bfloat16 take of scratch memory is the same in a graph.
func TestHalfInGraphs(t *testing.T) {
	l, path := stand(t)
	for _, blas := range []string{NoBLAS, path} {
		s := newDevice(t, path, Options{BLAS: blas}).NewStream("graph")
		const n = 16
		run := func() []uint16 {
			list := s.NewList()
			x, y := list.Alloc(tensorops.BFloat16, n, n), list.Alloc(tensorops.BFloat16, n, n)
			bias, lse := list.Alloc(tensorops.Float32, n), list.Alloc(tensorops.Float32, 1, 2, n)
			list.Upload(x, tensorops.HostBytes(slices.Repeat([]uint16{tensorops.ToBFloat16(0.3)}, n*n)))
			list.Fill(bias, 0.125)
			for range 2 {
				list.MatMul(y, x, x, tensorops.MatMulOpts{Bias: bias, BF16: true})
				list.GELU(x, y)
				list.Attention(y, x, x, x, lse, tensorops.AttentionOpts{Batch: 1, Heads: 2, KVHeads: 2, BF16: true})
				list.Add(x, x, y)
			}
			got := make([]uint16, n*n)
			list.Fetch(tensorops.HostBytes(got), x)
			for _, t := range []tensorops.Tensor{x, y, bias, lse} {
				list.Free(t)
			}
			if err := tensorops.Run(s, list); err != nil {
				t.Fatal(err)
			}
			return got
		}
		want, before := run(), l.Calls("cuGraphLaunch")
		for i := range 4 {
			if got := run(); !slices.Equal(got, want) {
				t.Errorf("run %d: %#x, the first had %#x", i+2, got[0], want[0])
			}
		}
		if launched := l.Calls("cuGraphLaunch") - before; launched < 2 {
			t.Errorf("%d graphs were launched", launched)
		}
	}
}

// TestJoinsCopies: updates that write the weights in bfloat16 too are one launch.
func TestJoinsCopies(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("updates")
	list := s.NewList()
	var of [3][5]tensorops.Tensor
	for i := range of {
		for part := range of[i] {
			dtype := tensorops.Float32
			if part == 4 {
				dtype = tensorops.BFloat16
			}
			of[i][part] = list.Alloc(dtype, 5+i)
			list.Fill(of[i][part], 0.3)
		}
	}
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	list, before := s.NewList(), l.Calls("cuLaunchKernel")
	for i, x := range of {
		o := tensorops.AdamWOpts{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, GradScale: 1, Step: 3}
		if i != 1 { // one is without
			o.Copy = x[4]
		}
		list.AdamW(x[0], x[1], x[2], x[3], o)
	}
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	if launches := l.Calls("cuLaunchKernel") - before; launches != 1 {
		t.Errorf("%d launches", launches)
	}
	for i, x := range of {
		w, err := fetched(s, x[0])
		if err != nil {
			t.Fatal(err)
		}
		half, err := fetchedAs[uint16](s, x[4])
		if err != nil {
			t.Fatal(err)
		}
		want := tensorops.ToBFloat16(w[0])
		if i == 1 {
			want = tensorops.ToBFloat16(0.3)
		}
		if w[0] == 0.3 || !slices.Equal(half, slices.Repeat([]uint16{want}, len(half))) {
			t.Errorf("tensor %d: weights %v, in bfloat16 %#x, want %#x", i, w, half, want)
		}
		for _, y := range x[1:4] {
			y.Release()
		}
	}
}
