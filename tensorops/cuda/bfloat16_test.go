//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestUsesAreWhole: of each operation that has a launcher it is known what it does with
// bfloat16: with each of its operands, or by itself.
func TestUsesAreWhole(t *testing.T) {
	for _, kind := range tensorops.Kinds() {
		itself := slices.Contains(knowBFloat16, kind)
		if launchers[kind] == nil && joiners[kind] == nil {
			if itself || uses[kind] != nil {
				t.Errorf("%v has no launcher", kind)
			}
			continue
		}
		operands := strings.Count((&tensorops.Op{Kind: kind}).String(), "=none")
		if n := len(uses[kind]); itself && n != 0 || !itself && n != operands {
			t.Errorf("%v has %d operands; of %d it is known what is done with them, and that the launcher takes bfloat16: %v", kind, operands, n, itself)
		}
		if joiners[kind] != nil && !itself {
			t.Errorf("%v: what joins operations has to take bfloat16 itself", kind)
		}
		for i, u := range uses[kind] {
			if u < reads || u > changes {
				t.Errorf("%v, operand %d: use %d", kind, i, u)
			}
		}
	}
}

// TestUnknownUse: bfloat16 is refused where it is not known what an operation does with it.
func TestUnknownUse(t *testing.T) {
	arena := tensorops.NewHostMemory(0).NewArena("unknown")
	x, err := tensorops.NewTensor(arena, tensorops.BFloat16, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	o := tensorops.Op{Kind: tensorops.KindUpload}
	o.T[0] = x
	ran := false
	l := func(*exec, *tensorops.Op) error { ran = true; return nil }
	if err := new(exec).byLauncher(&o, l); !errors.Is(err, tensorops.ErrUnsupported) || ran {
		t.Errorf("error %v, launched: %v", err, ran)
	}
}

// TestReadsInPlace: cuBLASLt reads and writes bfloat16 where it lies, as far as it lies at
// multiples of 16 bytes and no bias is added, and the bits are those of rounded copies.
func TestReadsInPlace(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	s := d.NewStream("in place")
	const rows, n = 6, 24
	a, b, ones := make([]float32, rows*n), make([]float32, n*n), slices.Repeat([]float32{1}, n)
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
		bias        bool
	}
	product := func(f form) (bits []uint16, launches int64) {
		list := s.NewList()
		wholeA, viewA := matrix(list, f.dtype, a, rows, f.wide, f.first)
		wholeB, viewB := matrix(list, f.dtype, b, n, f.wide, f.first)
		o := tensorops.MatMulOpts{BF16: true, TransB: true}
		bias := list.Alloc(tensorops.Float32, n)
		list.Upload(bias, tensorops.HostBytes(ones))
		if f.bias {
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
	for _, bias := range []bool{false, true} {
		want, _ := product(form{tensorops.Float32, n, 0, bias})
		after := int64(0) // the sum with a bias is rounded by a kernel
		if bias {
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
			got, launches := product(form{tensorops.BFloat16, test.wide, test.first, bias})
			if !slices.Equal(got, want) || launches != test.launches+after {
				t.Errorf("%s, bias %v: %d launches beside the product, want %d; the bits of copies: %v",
					test.what, bias, launches, test.launches+after, slices.Equal(got, want))
			}
		}
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
