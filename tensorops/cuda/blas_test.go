//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// TestOpsByLibrary runs the products of the one table of cases by cuBLASLt.
func TestOpsByLibrary(t *testing.T) {
	skipNumbers(t)
	l, path := stand(t)
	others := func(c optest.Case) bool {
		// How A is stored is nothing to a packed B.
		again := strings.HasPrefix(c.Name, "pack/T") && !strings.HasSuffix(c.Name, "/sizes") ||
			strings.HasPrefix(c.Name, "pack/NT") && isMixed(c)
		return c.Kind != tensorops.KindMatMul && c.Kind != tensorops.KindPack || again
	}
	before := l.Calls("cublasLtMatmul")
	d := newDevice(t, path, Options{BLAS: path})
	optest.Run(t, d, optest.Options{Skip: others})
	if l.Calls("cublasLtMatmul") == before {
		t.Error("no product was the library's")
	}
	if is := d.Work(); is.LibraryProducts == 0 || len(is.Fallen) > 0 {
		t.Errorf("%+v", is)
	}
}

// TestFusedOps runs the products with a GELU behind them in each way that they may go: in the
// library's product, behind it, and behind a product of the kernels here, whichever the rule for
// the GPU is. It is the tolerance of the table that all have to meet.
func TestFusedOps(t *testing.T) {
	_, path := stand(t)
	oracle := new(optest.Oracle)
	for _, test := range []struct {
		name  string
		o     Options
		path  string
		fuses bool
	}{
		{"fused", Options{BLAS: path, GELU: GELUFused}, "cuda-sm_90-cublaslt-12.4-gelu-fused", true},
		{"apart", Options{BLAS: path, GELU: GELUApart}, "cuda-sm_90-cublaslt-12.4", false},
		{"by rule", Options{BLAS: path}, "cuda-sm_90-cublaslt-12.4", false},
		{"own products", Options{}, "cuda-sm_90", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !long && test.name == "by rule" {
				t.Skip("it is as apart; make check-cuda runs it")
			}
			d := newDevice(t, path, test.o)
			optest.Run(t, d, optest.Options{Oracle: oracle, Skip: func(c optest.Case) bool { return !fewFused(c) }})
			is := d.Work()
			if d.Path() != test.path || (is.LibraryGELUs > 0) != test.fuses || (is.LibraryProducts > 0) != (test.o.BLAS != "") ||
				(is.KernelProducts > 0) != (test.o.BLAS == "") {
				t.Errorf("%s: %+v", d.Path(), is)
			}
		})
	}
}

// TestGELURule: the rule is one of the target alone, and a path says where something else is
// asked for.
func TestGELURule(t *testing.T) {
	for _, test := range []struct {
		target string
		gelu   GELU
		fuses  bool
		suffix string
	}{
		{"sm_90", geluByRule, false, ""}, {"sm_80", geluByRule, true, ""}, {"compute_90", geluByRule, true, ""},
		{"sm_90", GELUFused, true, "-gelu-fused"}, {"sm_80", GELUFused, true, ""},
		{"sm_90", GELUApart, false, ""}, {"sm_80", GELUApart, false, "-gelu-apart"},
	} {
		if fuses, suffix := test.gelu.fuses(test.target), test.gelu.suffix(test.target); fuses != test.fuses || suffix != test.suffix {
			t.Errorf("%+v: %v, %q", test, fuses, suffix)
		}
	}
}

// TestFallen: products that the library has no algorithm for are listed by their forms, each once.
func TestFallen(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	l.Refuse(standin.RefuseAll)
	for range 2 {
		usual.run(t, d)
	}
	small := usual
	small.rows, small.bf16 = 3, true
	small.run(t, d)
	is := d.Work()
	want := []string{"10×24×24 NN bias, strides 24, 24 and 24", "3×24×24 NN bias bfloat16, strides 24, 24 and 24"}
	if !slices.Equal(is.Fallen, want) || is.KernelProducts != 3 || is.LibraryProducts != 0 {
		t.Errorf("%+v, want the forms %q", is, want)
	}
}

// layer is a linear layer with a GELU behind, as tests vary it.
type layer struct {
	rows, in, out int
	bias          bool
	bf16, packed  bool
	transB        bool
	inPlace       bool // y is C
	reuse         bool // y takes the memory of A, which is as large
	part          bool // the GELU is of all rows but the last
}

// usual is one whose GELU goes with the product.
var usual = layer{rows: 10, in: 24, out: 24, bias: true}

// run computes the layer and returns C and y. The same layer has the same numbers.
func (l layer) run(t *testing.T, d *Device) (c, y []float32) {
	t.Helper()
	s := d.NewStream("layer")
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	list := s.NewList()
	filled := func(dims ...int) tensorops.Tensor {
		x := list.Alloc(tensorops.Float32, dims...)
		values := make([]float32, x.Len())
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		list.Upload(x, tensorops.HostBytes(values))
		return x
	}
	a, o := filled(l.rows, l.in), tensorops.MatMulOpts{BF16: l.bf16, TransB: l.transB}
	b := filled(l.in, l.out)
	if l.transB {
		b = b.View(l.out, l.in)
	}
	if l.bias {
		o.Bias = filled(l.out)
	}
	all := []tensorops.Tensor{b, o.Bias}
	if l.packed {
		dtype := tensorops.Float32
		if l.bf16 {
			dtype = tensorops.BFloat16
		}
		o.Packed = list.Alloc(dtype, tensorops.PackedLen(l.in, l.out))
		list.Pack(o.Packed, b, l.transB, l.bf16)
		list.Fill(b, math.NaN()) // nobody reads it
		all = append(all, o.Packed)
	}
	ct := list.Alloc(tensorops.Float32, l.rows, l.out)
	list.MatMul(ct, a, b, o)
	if l.reuse {
		list.Free(a)
	} else {
		all = append(all, a)
	}
	yt, of := ct, ct
	if !l.inPlace {
		yt = list.AllocLike(ct)
		all = append(all, ct)
	}
	if l.reuse != (address(yt) == address(a)) {
		t.Fatalf("y has A's memory: %v, want %v", !l.reuse, l.reuse)
	}
	whole := yt
	if l.part {
		list.Fill(yt, 0)
		yt, of = yt.RowRange(0, l.rows-1), ct.RowRange(0, l.rows-1)
	}
	list.GELU(yt, of)
	c, y = make([]float32, ct.Len()), make([]float32, ct.Len())
	list.Fetch(tensorops.HostBytes(c), ct)
	list.Fetch(tensorops.HostBytes(y), whole)
	for _, x := range append(all, whole) {
		list.Free(x)
	}
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	return c, y
}

// apart is the largest difference.
func apart(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= most) { // or NaN
			most = d
		}
	}
	return most
}

// TestGELUByLibrary: a GELU goes with the product where it may, and only there.
func TestGELUByLibrary(t *testing.T) {
	l, path := stand(t)
	own := newDevice(t, path, Options{})
	d := newDevice(t, path, Options{BLAS: path, GELU: GELUFused})
	for _, test := range []struct {
		what   string
		change func(*layer)
		refuse int32
		joined bool
	}{
		{"a bias", func(*layer) {}, 0, true},
		{"bfloat16", func(l *layer) { l.bf16 = true }, 0, true},
		{"the memory of A", func(l *layer) { l.reuse = true }, 0, true},
		{"one row", func(l *layer) { l.rows = 1 }, 0, true},
		{"no bias", func(l *layer) { l.bias = false }, 0, false},
		{"in place", func(l *layer) { l.inPlace = true }, 0, false},
		{"a part", func(l *layer) { l.part = true }, 0, false},
		{"uneven rows", func(l *layer) { l.out = 23 }, 0, false},
		{"no algorithm for the GELU", func(*layer) {}, standin.RefuseGELU, false},
		{"no algorithm", func(l *layer) { l.bf16 = true }, standin.RefuseAll, false},
		{"none when it runs", func(*layer) {}, standin.RefuseLate, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			if test.refuse != 0 {
				d = newDevice(t, path, Options{BLAS: path, GELU: GELUFused}) // one that does not know the algorithms yet
			}
			l.Refuse(test.refuse)
			defer l.Refuse(0)
			layer := usual
			test.change(&layer)
			wantC, wantY := layer.run(t, own)
			launches, products := l.Calls("cuLaunchKernel"), l.Calls("cublasLtMatmul")
			c, y := layer.run(t, d)
			launches, products = l.Calls("cuLaunchKernel")-launches, l.Calls("cublasLtMatmul")-products
			const tolerance = 1e-5
			if off := max(apart(c, wantC), apart(y, wantY)); !(off <= tolerance) {
				t.Errorf("%g apart from what the device's own kernels make", off)
			}
			others := int64(0) // roundings, fills, a copy of y
			rounds := layer.bf16 && test.refuse == 0
			for _, is := range []bool{rounds, rounds, layer.part, layer.reuse} {
				if is {
					others++
				}
			}
			switch {
			case test.joined && (launches != others || products != 1):
				t.Errorf("%d launches and %d products, want %d and one with its GELU", launches, products, others)
			case !test.joined && launches < others+1:
				t.Errorf("%d launches: a GELU of its own is not among them", launches)
			case test.refuse == standin.RefuseAll && launches != 2:
				t.Errorf("%d launches, want a product and a GELU: nothing is rounded in vain", launches)
			case test.refuse == standin.RefuseAll && (products != 0 || !slices.Equal(y, wantY)):
				t.Errorf("%d products of the library's, or not the bits of the device's own", products)
			}
		})
	}
}

// TestChanceMemory: whether y happens to lie where A was changes no bit.
func TestChanceMemory(t *testing.T) {
	l, path := stand(t)
	l.Delay(200)
	d := newDevice(t, path, Options{BLAS: path, GELU: GELUFused})
	reused := usual
	reused.reuse = true
	c1, y1 := usual.run(t, d)
	c2, y2 := reused.run(t, d)
	if !slices.Equal(c1, c2) || !slices.Equal(y1, y2) {
		t.Error("the bits differ")
	}
}

// TestPackedBits: a packed B changes no bit, and B itself is not read.
func TestPackedBits(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	for _, l := range []layer{
		{rows: 5, in: 33, out: 47, bf16: true},
		{rows: 5, in: 33, out: 47, bf16: true, transB: true},
		{rows: 64, in: 256, out: 40, bf16: true, bias: true},
	} {
		_, want := l.run(t, d)
		l.packed = true
		if _, got := l.run(t, d); !slices.Equal(got, want) {
			t.Errorf("%+v: the bits differ", l)
		}
	}
}

// TestRounds: bfloat16 is the nearest one, of two the even one, and a NaN stays one.
func TestRounds(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{BLAS: path}).NewStream("rounds")
	cases := [][2]uint32{ // float32 and bfloat16
		{0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, // 1 and a bit
		{0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, // its odd neighbour
		{0x80000000, 0x8000}, {0xbf808000, 0xbf80}, {0xbf818000, 0xbf82}, // signs
		{0x7f7fffff, 0x7f80}, {0x7f7f7fff, 0x7f7f}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, // infinity
		{0x7f800001, 0x7fc0}, {0xffc00000, 0xffc0}, {0x7fffffff, 0x7fff}, // NaN
		{0x00000001, 0x0000}, {0x00008001, 0x0001}, {0x007fffff, 0x0080}, // near 0
	}
	const rows, frame = 3, 2
	cols := len(cases)
	list := s.NewList()
	whole := list.Alloc(tensorops.Float32, rows, frame+cols)
	b := whole.Columns(frame, frame+cols) // no row begins at a multiple of 16 bytes
	values := make([]float32, whole.Len())
	for i := range values {
		if at := i%(frame+cols) - frame; at >= 0 {
			values[i] = math.Float32frombits(cases[at][0])
		}
	}
	dst := list.Alloc(tensorops.BFloat16, tensorops.PackedLen(rows, cols))
	list.Upload(whole, tensorops.HostBytes(values))
	list.Pack(dst, b, false, true)
	list.Free(whole)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	packed, err := fetchedAs[uint16](s, dst)
	if err != nil {
		t.Fatal(err)
	}
	for row := range rows {
		for i, c := range cases {
			if got := uint32(packed[row*roundedStride(b)+i]); got != c[1] {
				t.Errorf("row %d: %#08x is rounded to %#04x, want %#04x", row, c[0], got, c[1])
			}
		}
	}
}

// TestPlans: an algorithm is asked for once, by whichever stream, and again when too many
// have been.
func TestPlans(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	asked := func() int64 {
		before := l.Calls("cublasLtMatmulAlgoGetHeuristic")
		usual.run(t, d)
		return l.Calls("cublasLtMatmulAlgoGetHeuristic") - before
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times for one product", n)
	}
	if n := asked(); n != 0 {
		t.Errorf("asked %d times again", n)
	}
	if err := d.owner.call(func() error {
		for i := range limitPlans {
			if _, err := d.blas.plan(&driver.Matmul{M: 1, N: 1, K: 1 + i, LDA: 1, LDB: 1 + i, LDD: 1, Epilogue: driver.NoEpilogue,
				AlignA: 4, AlignB: 4, AlignD: 4}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(d.blas.plans); n > limitPlans {
		t.Errorf("%d plans are kept", n)
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times for a product that was forgotten", n)
	}
}

// TestProductAllocates: a product that was launched before is launched without memory of
// Go's.
func TestProductAllocates(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory counts")
	}
	_, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	s := d.NewStream("allocates").(*stream)
	list := s.NewList()
	a, b, bias, c := list.Alloc(tensorops.Float32, 8, 8), list.Alloc(tensorops.Float32, 8, 8), list.Alloc(tensorops.Float32, 8),
		list.Alloc(tensorops.Float32, 8, 8)
	list.MatMul(c, a, b, tensorops.MatMulOpts{Bias: bias})
	list.MatMul(c, a, b, tensorops.MatMulOpts{Bias: a.RowRange(1, 2).View(8)}) // another bias for the same algorithm
	ops := slices.Clone(list.Ops())
	for _, x := range []tensorops.Tensor{a, b, bias, c} {
		list.Fill(x, 1)
	}
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	err := d.owner.call(func() (err error) {
		run := func() {
			for i := range ops {
				if _, failed := s.exec.do(ops[i:]); failed != nil {
					err = failed
				}
			}
		}
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%g allocations for two products", n)
		}
		return errors.Join(err, d.driver.WaitStream(s.handle))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []tensorops.Tensor{a, b, bias, c} {
		x.Release()
	}
}

// TestRoundedOnce: products that follow each other round a matrix that they share once,
// unless one of them writes it.
func TestRoundedOnce(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{BLAS: path}).NewStream("shares")
	const n = 8
	for _, test := range []struct {
		what     string
		products func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts)
		launches int64
	}{
		{"a shared A", func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts) {
			list.MatMul(x[2], x[0], x[1], o)
			list.MatMul(x[3], x[0], x[1], o)
		}, 2},
		{"A and B change places", func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts) {
			list.MatMul(x[2], x[0], x[1], o)
			list.MatMul(x[3], x[1], x[0], o)
		}, 2},
		{"A is written", func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts) {
			list.MatMul(x[2], x[0], x[1], o)
			list.MatMul(x[0], x[2], x[1], o)
			list.MatMul(x[3], x[0], x[1], o)
		}, 4},
		{"something is between", func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts) {
			list.MatMul(x[2], x[0], x[1], o)
			list.Fill(x[0], 0.5)
			list.MatMul(x[3], x[0], x[1], o)
		}, 5},
		{"more than are joined", func(list *tensorops.List, x [4]tensorops.Tensor, o tensorops.MatMulOpts) {
			for range limitJoined + 1 {
				list.MatMul(x[3], x[0], x[1], o)
			}
		}, 4},
	} {
		// Powers of two: bfloat16 has them all, and their sums of eight.
		compute := func(bf16 bool) ([]float32, int64) {
			list := s.NewList()
			var x [4]tensorops.Tensor
			for i := range x {
				x[i] = list.Alloc(tensorops.Float32, n, n)
				list.Fill(x[i], float64(int(1)<<i))
			}
			test.products(list, x, tensorops.MatMulOpts{BF16: bf16})
			for _, y := range x[:3] {
				list.Free(y)
			}
			before := l.Calls("cuLaunchKernel")
			if err := tensorops.Run(s, list); err != nil {
				t.Fatal(err)
			}
			launches := l.Calls("cuLaunchKernel") - before - int64(len(x))
			got, err := fetched(s, x[3])
			if err != nil {
				t.Fatal(err)
			}
			return got, launches
		}
		want, _ := compute(false)
		got, launches := compute(true)
		if !slices.Equal(got, want) || launches != test.launches {
			t.Errorf("%s: %d launches beside the products, want %d; result %g, want %g", test.what, launches, test.launches, got[0], want[0])
		}
	}
}

// TestProductsInGraphs: the library's products go into a graph, with what they round, and
// are not asked of it any more.
func TestProductsInGraphs(t *testing.T) {
	l, path := stand(t)
	l.Delay(100)
	s := newDevice(t, path, Options{BLAS: path}).NewStream("graph")
	const n = 16
	run := func(value float32) (products int64, y []float32) {
		list := s.NewList()
		x, w, bias, u := list.Alloc(tensorops.Float32, n, n), list.Alloc(tensorops.Float32, n, n), list.Alloc(tensorops.Float32, n),
			list.Alloc(tensorops.Float32, n, n)
		out := list.AllocLike(u)
		list.Upload(x, tensorops.HostBytes(slices.Repeat([]float32{value}, n*n)))
		list.Fill(w, 0.125)
		list.Fill(bias, 1)
		for range minGraphOps {
			list.MatMul(u, x, w, tensorops.MatMulOpts{Bias: bias, BF16: true})
			list.GELU(out, u)
			list.MatMul(u, w, x, tensorops.MatMulOpts{Accumulate: true})
		}
		y = make([]float32, n*n)
		list.Fetch(tensorops.HostBytes(y), out)
		for _, t := range []tensorops.Tensor{x, w, bias, u, out} {
			list.Free(t)
		}
		before := l.Calls("cublasLtMatmul")
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return l.Calls("cublasLtMatmul") - before, y
	}
	const all = 2 * minGraphOps
	for i, most := range []int64{all, all, all, 0, 0} { // from the second run on tensors have their memory again
		products, y := run(float32(i))
		value := 0.125*float64(i)*n + 1
		gelu := value / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(value+0.044715*value*value*value)))
		if products > most || i == 0 && products != all || !(math.Abs(float64(slices.Max(y))-gelu) < 1e-5) || slices.Min(y) != slices.Max(y) {
			t.Errorf("run %d: %d products, want at most %d; GELU %g to %g, want %g", i+1, products, most, slices.Min(y), slices.Max(y), gelu)
		}
	}
}

// TestTF32: products are of rounded numbers where that is asked for, and the path says so.
func TestTF32(t *testing.T) {
	_, path := stand(t)
	whole, rounded := newDevice(t, path, Options{BLAS: path}), newDevice(t, path, Options{BLAS: path, TF32: true})
	_, want := usual.run(t, whole)
	_, got := usual.run(t, rounded)
	if off := apart(got, want); off < 1e-5 || !(off < 2e-2) {
		t.Errorf("%g apart from the product of whole numbers", off)
	}
	for _, test := range []struct {
		d    *Device
		want string
	}{
		{whole, "cuda-sm_90-cublaslt-12.4"},
		{rounded, "cuda-sm_90-cublaslt-12.4-tf32"},
		{newDevice(t, path, Options{TF32: true}), "cuda-sm_90"},
	} {
		if got := test.d.Path(); got != test.want || test.d.HasBLAS() != strings.Contains(test.want, "cublas") {
			t.Errorf("path %q, has BLAS: %v; want %q", got, test.d.HasBLAS(), test.want)
		}
	}
}

// TestBLASThatFails: a library that is found and does not work is an error only if it was
// asked for.
func TestBLASThatFails(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	for _, required := range []bool{false, true} {
		b, err := openBLAS(Options{BLAS: path}, d.driver)
		if err != nil {
			t.Fatal(err)
		}
		b.required = required
		l.Fail("cublasLtCreate", 1, 1)
		err = d.owner.call(b.begin)
		if b.isThere() || (err != nil) != required || required && !strings.Contains(err.Error(), "CUBLAS_STATUS_NOT_INITIALIZED (1)") {
			t.Errorf("required: %v; error %v, there: %v", required, err, b.isThere())
		}
	}
}
