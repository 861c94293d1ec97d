//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// sums records 3x for so many rows, by way of memory of several sizes, and fetches it.
func sums(list *tensorops.List, rows int) []float32 {
	const cols = 16
	x := list.Alloc(tensorops.Float32, rows, cols)
	values := make([]float32, x.Len())
	for i := range values {
		values[i] = float32(i%1013) / 1013
	}
	list.Upload(x, tensorops.HostBytes(values))
	y := list.Alloc(tensorops.Float32, cols, cols)
	list.Fill(y, 1)
	z := list.AllocLike(x)
	list.Add(z, x, x)
	list.Add(z, z, x)
	got := make([]float32, z.Len())
	list.Fetch(tensorops.HostBytes(got), z)
	for _, t := range []tensorops.Tensor{x, y, z} {
		list.Free(t)
	}
	return got
}

// computed runs sums on a stream.
func computed(t *testing.T, s tensorops.Stream, rows int) []float32 {
	t.Helper()
	list := s.NewList()
	got := sums(list, rows)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatalf("%d rows: %v", rows, err)
	}
	return got
}

// TestFullMemory: where the GPU has no more, a list gets what lies pooled in other classes of its
// arena, and in other arenas, also while these have lists under way; and computes the same bits.
func TestFullMemory(t *testing.T) {
	l, path := stand(t)
	const few, many = 2800, 8000
	all := newDevice(t, path, Options{})
	roomy := all.NewStream("roomy")
	want := map[int][]float32{few: computed(t, roomy, few), many: computed(t, roomy, many)}
	all.Close() // it has memory of the same GPU
	const bytes = 1720 << 10
	l.Memory(bytes) // many rows take 2 times half a MiB, at least
	for _, test := range []struct {
		name string
		run  func(t *testing.T, d *Device, a, b tensorops.Stream)
	}{
		{"another class of the arena", func(t *testing.T, _ *Device, a, _ tensorops.Stream) {
			// Sizes that no two of share a class.
			for rows := few; rows < 2*few; rows += 400 {
				computed(t, a, rows)
			}
		}},
		{"another arena", func(t *testing.T, _ *Device, a, b tensorops.Stream) {
			for rows := 2 * few; rows > few; rows -= 400 {
				computed(t, b, rows)
				computed(t, a, rows-200)
			}
		}},
		{"another arena with a list that began since", func(t *testing.T, _ *Device, _, b tensorops.Stream) {
			for rows := 2 * few; rows > few; rows -= 400 {
				computed(t, b, rows)
			}
			open := b.NewList()
			t.Cleanup(func() {
				if err := tensorops.Run(b, open); err != nil {
					t.Error(err)
				}
			})
		}},
		{"larger buffers of the arena, that a list may use", func(t *testing.T, _ *Device, a, _ tensorops.Stream) {
			open := a.NewList()
			t.Cleanup(func() {
				if err := tensorops.Run(a, open); err != nil {
					t.Error(err)
				}
			})
			computed(t, a, 9200)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDevice(t, path, Options{})
			a, b := d.NewStream("a"), d.NewStream("b")
			test.run(t, d, a, b)
			before := d.Memory()
			for _, rows := range []int{many, few, many} {
				if got := computed(t, a, rows); !slices.Equal(got, want[rows]) {
					t.Errorf("%d rows: the bits differ", rows)
				}
			}
			t.Logf("%d bytes were kept before, %d are now, of %d", before.Pooled, d.Memory().Pooled, bytes)
		})
	}
}

// TestFullOfGraphs: the scratch memory that graphs hold is given back where there is no other, and
// they are made again.
func TestFullOfGraphs(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	s, other := d.NewStream("graphs"), d.NewStream("other")
	const n, depth = 60, 4096
	run := func() []float32 {
		list := s.NewList()
		x, w, y := list.Alloc(tensorops.BFloat16, n, depth), list.Alloc(tensorops.BFloat16, depth, n), list.Alloc(tensorops.Float32, n, n)
		list.Fill(x, 0.5)
		list.Fill(w, 0.25)
		list.MatMul(y, x, w, tensorops.MatMulOpts{BF16: true}) // of copies in float32, which lie in scratch memory
		list.Add(y, y, y)
		got := make([]float32, y.Len())
		list.Fetch(tensorops.HostBytes(got), y)
		for _, x := range []tensorops.Tensor{x, w, y} {
			list.Free(x)
		}
		if err := tensorops.Run(s, list); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := run()
	for range 3 {
		run()
	}
	made := d.Work().Graphs
	if made == 0 {
		t.Fatal("no graph was made")
	}
	x := s.(*stream)
	scratch := d.TakenBy()["graphs (scratch)"]
	in := d.Memory()
	if scratch < 2*4*n*depth {
		t.Fatalf("%d bytes of scratch memory, want two copies of matrices", scratch)
	}
	// As much as all that is kept but the scratch memory is not enough; with it, it is.
	var rest int64
	if err := d.owner.call(func() error {
		free, _, err := d.driver.MemoryInfo()
		rest = in.Pooled - scratch/2
		l.Memory(uintptr(int64(16<<30) - free + 1024))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	list := other.NewList()
	large := list.Alloc(tensorops.Float32, int(rest/4*15/16))
	list.Free(large)
	if err := tensorops.Run(other, list); err != nil {
		t.Fatalf("%d of %d bytes that are kept, %d of them scratch memory: %v", rest, in.Pooled, scratch, err)
	}
	if len(x.exec.graphs.kept) != 0 {
		t.Errorf("%d graphs are kept", len(x.exec.graphs.kept))
	}
	for i := range 4 {
		if got := run(); !slices.Equal(got, want) {
			t.Errorf("run %d: the bits differ", i+1)
		}
	}
	if d.Work().Graphs == made || len(x.exec.graphs.kept) == 0 {
		t.Error("no graph is made again")
	}
	list = other.NewList()
	list.Alloc(tensorops.Float32, 1<<30)
	if err := tensorops.Run(other, list); !errors.Is(err, tensorops.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
}
