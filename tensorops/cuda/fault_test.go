//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestNoRoomForScratch: an operation that finds no room for what it needs on the way is an
// error that says whose memory it is, and is done as soon as there is room.
func TestNoRoomForScratch(t *testing.T) {
	_, path := stand(t)
	const limit = 8 << 20
	kept := t.TempDir()
	for _, c := range []struct {
		name string
		blas bool
		// record makes an operation's operands, and returns what records it.
		record func(make func(d tensorops.DType, dims ...int) tensorops.Tensor) func(l *tensorops.List)
	}{
		{"SquaredNorm", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			x, out := make(tensorops.Float32, 1000), make(tensorops.Float64, 1)
			return func(l *tensorops.List) { l.SquaredNorm(out, x) }
		}},
		{"AdamW", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			w, m, v, g := make(tensorops.Float32, 100), make(tensorops.Float32, 100), make(tensorops.Float32, 100), make(tensorops.Float32, 100)
			return func(l *tensorops.List) {
				l.AdamW(w, m, v, g, tensorops.AdamWOpts{LR: 1, Beta1: 0.9, Beta2: 0.99, Eps: 1, GradScale: 1, Step: 1})
			}
		}},
		{"ColSum", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			sum, x := make(tensorops.Float32, 30), make(tensorops.Float32, 20, 30)
			return func(l *tensorops.List) { l.ColSum(sum, x) }
		}},
		{"EmbedGrad", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			grad, dy, ids := make(tensorops.Float32, 10, 4), make(tensorops.Float32, 6, 4), make(tensorops.Int32, 6)
			return func(l *tensorops.List) { l.EmbedGrad(grad, dy, ids) }
		}},
		{"CrossEntropy", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			stats, lse := make(tensorops.Float64, tensorops.LossStats), make(tensorops.Float64, 5)
			logits, targets := make(tensorops.Float32, 5, 7), make(tensorops.Int32, 5)
			return func(l *tensorops.List) { l.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{}) }
		}},
		{"AttentionGrad", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			var x [8]tensorops.Tensor
			for i := range x {
				x[i] = make(tensorops.Float32, 6, 8)
			}
			lse := make(tensorops.Float32, 1, 2, 6)
			return func(l *tensorops.List) {
				l.AttentionGrad(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], lse, tensorops.AttentionOpts{Batch: 1, Heads: 2, KVHeads: 2})
			}
		}},
		{"a deep MatMul", false, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			c, a, b := make(tensorops.Float32, 4, 4), make(tensorops.Float32, 4, 3*pieceDepth), make(tensorops.Float32, 3*pieceDepth, 4)
			return func(l *tensorops.List) { l.MatMul(c, a, b, tensorops.MatMulOpts{}) }
		}},
		{"a rounded MatMul", true, func(make func(tensorops.DType, ...int) tensorops.Tensor) func(*tensorops.List) {
			c, a, b := make(tensorops.Float32, 8, 8), make(tensorops.Float32, 8, 8), make(tensorops.Float32, 8, 8)
			return func(l *tensorops.List) { l.MatMul(c, a, b, tensorops.MatMulOpts{BF16: true}) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{LimitBytes: limit, Cache: kept}
			if c.blas {
				o.BLAS, o.LimitBytes = path, limit+workspaceBytes
			}
			d := newDevice(t, path, o)
			s, rest := d.NewStream("ops"), d.NewStream("rest")
			list := s.NewList()
			var operands []tensorops.Tensor
			op := c.record(func(dtype tensorops.DType, dims ...int) tensorops.Tensor {
				x := list.Alloc(dtype, dims...)
				operands = append(operands, x)
				return x
			})
			for _, x := range operands {
				list.Upload(x, make([]byte, x.Len()*x.DType().Size()))
			}
			if err := tensorops.Run(s, list); err != nil {
				t.Fatal(err)
			}
			for n := int(o.LimitBytes); n > 0; n /= 2 { // until not a byte is left
				for {
					if _, err := rest.Arena().Take(n); err != nil {
						break
					}
				}
			}
			run := func() error {
				list := s.NewList()
				op(list)
				return tensorops.Run(s, list)
			}
			if err := run(); !errors.Is(err, tensorops.ErrOutOfMemory) || !strings.Contains(err.Error(), "ops (scratch)") {
				t.Errorf("without room: %v, want ErrOutOfMemory of the scratch memory", err)
			}
			tensorops.CloseStream(rest)
			if err := run(); err != nil {
				t.Errorf("with room again: %v", err)
			}
			list = s.NewList()
			for _, x := range operands {
				list.Free(x)
			}
			if err := tensorops.Run(s, list); err != nil || d.Memory().InUse != 0 {
				t.Errorf("in the end %d bytes are in use, %v", d.Memory().InUse, err)
			}
		})
	}
}

// panicking is a group whose code is wrong.
type panicking struct {
	size int
	with func()
}

func (p panicking) Size() int                        { return p.size }
func (p panicking) Rank() int                        { return 0 }
func (p panicking) Start(*tensorops.Op, func(error)) { p.with() }

// TestPanickingGroup: a panic in a group's code fails the list that it was called for, with
// its place, and no other; an error that is thrown comes back as it is.
func TestPanickingGroup(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("panicking")
	lost := errors.New("peer lost")
	for _, size := range []int{1, 2} {
		for _, c := range []struct {
			with func()
			is   error
			says []string
		}{
			{func() { panic(lost) }, lost, nil},
			{func() { panic("no peers") }, nil, []string{"panic: no peers", "fault_test.go"}},
			{func() { var peers []int; _ = peers[size] }, nil, []string{"panic: runtime error: index out of range", "fault_test.go"}},
		} {
			list := s.NewList()
			x := list.Alloc(tensorops.Float32, 10)
			list.Fill(x, 1)
			list.AllReduce(x, tensorops.Sum, panicking{size, c.with})
			err := tensorops.Run(s, list)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("a group of %d: error %v, want %v", size, err, c.is)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("a group of %d: %q isn't in: %v", size, text, err)
				}
			}
			if got, err := fetched(s, x); err != nil || got[9] != 1 {
				t.Errorf("the next list: %v, %v", got, err)
			}
		}
	}
	if n := d.Memory().InUse; n != 0 {
		t.Errorf("%d bytes are in use in the end", n)
	}
}

// TestNegativeLimit: a limit below 0 is refused before anything is opened.
func TestNegativeLimit(t *testing.T) {
	d, err := New(Options{LimitBytes: -5, Driver: "/nowhere/libcuda.so"})
	if d != nil || err == nil || !strings.Contains(err.Error(), "-5 bytes") || errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, %v", d, err)
	}
}

// TestCacheIsNoError: what goes wrong with the cache costs a compilation, and leaves no
// halves of files.
func TestCacheIsNoError(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	nowhere := userCache()
	if nowhere != (cache{}) {
		t.Errorf("without a home the cache is in %q", nowhere.folder)
	}
	nowhere.store("key", []byte("image"))
	if image, ok := nowhere.load("key"); ok {
		t.Errorf("no cache holds %q", image)
	}

	dir := t.TempDir()
	c := cache{dir}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.store("taken", []byte("image"))
	if image, ok := c.load("taken"); ok {
		t.Errorf("a folder holds %q", image)
	}
	c.store("key", []byte("image"))
	if image, ok := c.load("key"); !ok || !bytes.Equal(image, []byte("image")) {
		t.Errorf("it holds %q, %v", image, ok)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 || names[0].Name() != "key" || names[1].Name() != "taken" {
		t.Errorf("left are %v, %v, want key and taken", names, err)
	}
}
