//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// TestEmulatesMMA: what the kernels for tensor cores are tested with here is right itself.
func TestEmulatesMMA(t *testing.T) {
	l, _ := stand(t)
	for what, check := range map[string]func() int32{"mma": l.CheckMMA, "ldmatrix": l.CheckLDMatrix, "cp.async": l.CheckCopies} {
		if wrong := check(); wrong != 0 {
			t.Errorf("%s: %d are wrong", what, wrong)
		}
	}
}

// heads are sequences of queries, keys, values and gradients of the output.
type heads struct {
	batch, tq, tk, heads, kvHeads, width int

	q, k, v, do []float32
}

func newHeads(h heads) heads {
	draw := func(n int, stream uint64) []float32 {
		x := make([]float32, n)
		rng.Normal(x, rng.NewKey(8, stream), 0, 0, 1)
		return x
	}
	queries, keys := h.batch*h.tq*h.heads*h.width, h.batch*h.tk*h.kvHeads*h.width
	h.q, h.k, h.v, h.do = draw(queries, 1), draw(keys, 2), draw(keys, 3), draw(queries, 4)
	return h
}

// sequence is one of them alone.
func (h heads) sequence(i int) heads {
	of := func(x []float32) []float32 { return x[len(x)/h.batch*i : len(x)/h.batch*(i+1)] }
	h.q, h.k, h.v, h.do, h.batch = of(h.q), of(h.k), of(h.v), of(h.do), 1
	return h
}

// attended is what attention and its gradient make of them: o, lse, dq, dk and dv.
func (h heads) attended(t *testing.T, s tensorops.Stream, bf16 bool, first uint64) [5][]float32 {
	t.Helper()
	l := s.NewList()
	matrix := func(x []float32, rows, cols int) tensorops.Tensor {
		m := l.Alloc(tensorops.Float32, rows, cols)
		l.Upload(m, tensorops.HostBytes(x))
		return m
	}
	rowsQ, rowsK, colsQ, colsK := h.batch*h.tq, h.batch*h.tk, h.heads*h.width, h.kvHeads*h.width
	q, k, v, do := matrix(h.q, rowsQ, colsQ), matrix(h.k, rowsK, colsK), matrix(h.v, rowsK, colsK), matrix(h.do, rowsQ, colsQ)
	o, lse := l.AllocLike(q), l.Alloc(tensorops.Float32, h.batch, h.heads, h.tq)
	dq, dk, dv := l.AllocLike(q), l.AllocLike(k), l.AllocLike(v)
	opts := tensorops.AttentionOpts{Batch: h.batch, Heads: h.heads, KVHeads: h.kvHeads, BF16: bf16,
		Mask: tensorops.Mask{Key: rng.NewKey(3, 1), Step: 5, First: first, P: 0.25}}
	l.Attention(o, q, k, v, lse, opts)
	l.AttentionGrad(dq, dk, dv, do, q, k, v, o, lse, opts)
	var got [5][]float32
	for i, x := range []tensorops.Tensor{o, lse, dq, dk, dv} {
		got[i] = make([]float32, x.Len())
		l.Fetch(tensorops.HostBytes(got[i]), x)
	}
	for _, x := range []tensorops.Tensor{q, k, v, do, o, lse, dq, dk, dv} {
		l.Free(x)
	}
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	return got
}

// otherOrder runs one kernel. The stand-in runs the threads and blocks of every other backwards:
// so those after it run in the other order than they would have.
func otherOrder(t *testing.T, s tensorops.Stream) {
	t.Helper()
	l := s.NewList()
	x := l.Alloc(tensorops.Float32, 1)
	l.Fill(x, 0)
	l.Free(x)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
}

var attendedNames = [5]string{"o", "lse", "dq", "dk", "dv"}

// TestAttentionBits: attention in bfloat16 has the same bits run after run, and for a
// sequence alone and among others.
func TestAttentionBits(t *testing.T) {
	_, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("attention")
	for _, h := range []heads{
		{batch: 3, tq: 70, tk: 70, heads: 2, kvHeads: 1, width: 64},
		{batch: 2, tq: 20, tk: 37, heads: 2, kvHeads: 2, width: 80},
		{batch: 2, tq: 9, tk: 9, heads: 1, kvHeads: 1, width: 6},
		{batch: 2, tq: 290, tk: 290, heads: 4, kvHeads: 2, width: 64}, // blocks take turns
		{batch: 1, tq: 150, tk: 210, heads: 2, kvHeads: 2, width: 128},
	} {
		h = newHeads(h)
		want := h.attended(t, s, true, 100)
		otherOrder(t, s)
		again := h.attended(t, s, true, 100)
		for i, name := range attendedNames {
			if !slices.Equal(again[i], want[i]) {
				t.Errorf("%d × %d of %d: %s differs in a second run", h.tq, h.tk, h.width, name)
			}
		}
		for b := range h.batch {
			alone := h.sequence(b).attended(t, s, true, 100+uint64(b*h.heads*h.tq*h.tk))
			for i, name := range attendedNames {
				n := len(alone[i])
				if !slices.Equal(alone[i], want[i][b*n:(b+1)*n]) {
					t.Errorf("%d × %d of %d: %s of sequence %d alone differs", h.tq, h.tk, h.width, name, b)
				}
			}
		}
	}
}

// TestAttentionOnTensorCores: bfloat16 is computed with where it is allowed, the GPU has it
// and the heads are narrow enough; elsewhere the bits are float32's.
func TestAttentionOnTensorCores(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	ampere, volta := d.NewStream("ampere"), d.NewStream("volta")
	volta.(*stream).exec.tensorCores = false
	for _, test := range []struct {
		name    string
		on      tensorops.Stream
		width   int
		differs bool
	}{
		{"narrow heads", ampere, 64, true},
		{"wide heads", ampere, 128, true},
		{"heads that are too wide", ampere, 132, false},
		{"a GPU without", volta, 64, false},
	} {
		h := newHeads(heads{batch: 1, tq: 12, tk: 12, heads: 1, kvHeads: 1, width: test.width})
		plain, rounded := h.attended(t, test.on, false, 0), h.attended(t, test.on, true, 0)
		for i, name := range attendedNames {
			if slices.Equal(plain[i], rounded[i]) == test.differs {
				t.Errorf("%s: %s with bfloat16 differs from float32's: %v, want %v", test.name, name, !test.differs, test.differs)
			}
		}
	}
}

// TestSharedMemory: a launch with more dynamic shared memory than every kernel may have takes
// that this one is allowed to, and none is allowed more than a GPU has.
func TestSharedMemory(t *testing.T) {
	_, path := stand(t)
	runtime.LockOSThread() // whose context is set
	defer runtime.UnlockOSThread()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := driver.Open(driver.Libraries{Driver: path})
	check(err)
	gpu, err := d.Device(0)
	check(err)
	c, err := d.Retain(gpu)
	check(err)
	defer func() { check(d.Release(gpu)) }()
	check(d.Use(c))
	defer func() { check(d.Use(0)) }()
	image, err := kernels.PTX("attention_mma.cu")
	check(err)
	m, err := d.Load(image)
	check(err)
	defer func() { check(d.Unload(m)) }()
	f, err := d.Function(m, "attention_mma_128")
	check(err)
	s, err := d.NewStream()
	check(err)
	defer func() { check(d.EndStream(s)) }()
	start := func(shared int) error {
		var l driver.Launch
		var args attentionMMAArgs // nothing runs
		copy(l.Argument(int(unsafe.Sizeof(args))), unsafe.Slice((*byte)(unsafe.Pointer(&args)), unsafe.Sizeof(args)))
		return d.Launch(f, [3]int{1, 1, 1}, [3]int{mmaThreads, 1, 1}, shared, s, &l)
	}
	const needed = 65536
	if err := start(needed); err == nil {
		t.Error("launched without having been allowed to")
	}
	if err := d.AllowShared(f, 228<<10); err == nil {
		t.Error("allowed more than an H100 has")
	}
	check(d.AllowShared(f, needed-16))
	if err := start(needed); err == nil {
		t.Error("launched with more than it was allowed")
	}
	check(d.AllowShared(f, needed))
}

func TestMultipliesBF16(t *testing.T) {
	for target, want := range map[string]bool{"sm_75": false, "sm_80": true, "sm_120": true, "compute_70": false, "compute_90": true,
		"": false} {
		if multipliesBF16(target) != want {
			t.Errorf("%q: %v, want %v", target, !want, want)
		}
	}
}

// TestAttentionNumbers: sizes that the kernels can't number are refused, never computed as others.
func TestAttentionNumbers(t *testing.T) {
	for _, c := range []struct {
		sizes   tensorops.AttentionSizes
		refused bool
	}{
		{tensorops.AttentionSizes{Batch: 1, Heads: 1, Queries: 9, Keys: 9}, false},
		{tensorops.AttentionSizes{Batch: 1, Heads: 2, Queries: 9, Keys: 9, Of: 1 << 30}, false},
		{tensorops.AttentionSizes{Batch: 2, Heads: 2, Queries: 9, Keys: 9, Of: 1 << 30}, true},
		{tensorops.AttentionSizes{Batch: 1, Heads: 1, Queries: 9, Keys: 9, Whole: true, Before: 1<<31 - 10}, false},
		{tensorops.AttentionSizes{Batch: 1, Heads: 1, Queries: 9, Keys: 9, Whole: true, Before: 1<<31 - 9}, true},
	} {
		if err := countable(c.sizes); errors.Is(err, tensorops.ErrUnsupported) != c.refused || (err != nil) != c.refused {
			t.Errorf("%+v: %v", c.sizes, err)
		}
	}
}
