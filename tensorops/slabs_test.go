package tensorops

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is taken and put after Join, no two buffers share a byte, all is counted, and what has come back is whole
// again.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewHostMemory(0)
		a := m.NewArena("a")
		a.Join()
		type lent struct {
			b    *Buffer
			mark byte
		}
		var out []lent
		inUse := int64(0)
		for n := range rapid.IntRange(1, 40).Draw(t, "actions") {
			if len(out) > 0 && rapid.Bool().Draw(t, "put") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				if o := out[i]; bytes.IndexFunc(o.b.Mem[:o.b.bytes], func(r rune) bool { return r != rune(o.mark) }) >= 0 {
					t.Fatalf("a buffer of %d bytes was written by another's owner", o.b.bytes)
				}
				inUse -= int64(out[i].b.bytes)
				a.Put(out[i].b)
				out = append(out[:i], out[i+1:]...)
			} else {
				size := rapid.SampledFrom([]int{100, leastPiece, leastPiece + 1, 3 * leastPiece, 1 << 20, 3 << 20}).Draw(t, "size")
				b, err := a.Take(size)
				if err != nil {
					t.Fatal(err)
				}
				if len(b.Mem) < size || len(b.Mem) != b.bytes || b.bytes > size+max(size/perDoubling, pieceGrain) {
					t.Fatalf("%d bytes for %d, in memory of %d", b.bytes, size, len(b.Mem))
				}
				o := lent{b, byte(1 + n)}
				for i := range b.Mem {
					b.Mem[i] = o.mark
				}
				out = append(out, o)
				inUse += int64(b.bytes)
			}
			if got := m.Stats(); got.InUse != inUse || got.InUse+got.Pooled != a.held || got.Taken < a.held {
				t.Fatalf("%+v, in use are %d of %d", got, inUse, a.held)
			}
		}
		for _, o := range out {
			a.Put(o.b)
		}
		if len(a.slabs.free) != len(a.slabs.all) {
			t.Fatalf("%d slabs are in %d pieces", len(a.slabs.all), len(a.slabs.free))
		}
		m.Trim(1 << 40)
		if got := m.Stats(); got.InUse != 0 || got.Pooled != 0 || a.held != 0 {
			t.Fatalf("after all came back: %+v, held %d", got, a.held)
		}
	})
}

// What was free in one size serves another, both ways, where it lay.
func TestJoinServesOtherSizes(t *testing.T) {
	m := NewMemory(&nothing{next: minClassBytes}, 0)
	a := m.NewArena("a")
	a.Join()
	const mib = 1 << 20
	for step := range 3 {
		large, err := a.Take(16 * mib)
		if err != nil {
			t.Fatal(err)
		}
		first := large.Addr
		a.Put(large)
		var small []*Buffer
		for i := range 16 {
			b, err := a.Take(mib)
			if err != nil {
				t.Fatal(err)
			}
			if want := first + uint64(i*mib); b.Addr != want {
				t.Errorf("step %d: piece %d lies at %#x, not %#x", step, i, b.Addr, want)
			}
			small = append(small, b)
		}
		for _, i := range []int{3, 0, 15, 1, 2, 4, 9, 8, 7, 5, 6, 10, 12, 14, 13, 11} {
			a.Put(small[i])
		}
	}
	if got := m.Stats(); got.Taken != 16*mib || got.Pooled != 16*mib {
		t.Errorf("%+v", got)
	}
}

// Under a limit no slab is larger than what is asked for, and what was kept goes where the rest would not fit.
func TestJoinUnderALimit(t *testing.T) {
	const mib = 1 << 20
	m := NewHostMemory(10 * mib)
	a := m.NewArena("a")
	a.Join()
	for range 3 {
		var out []*Buffer
		for _, size := range []int{mib, 2 * mib, 3 * mib, 4 * mib} {
			out = append(out, take(t, a, size))
		}
		for _, b := range out {
			a.Put(b)
		}
		a.Put(take(t, a, 10*mib))
	}
	if got := m.Stats(); got.Taken > 10*mib {
		t.Errorf("%+v", got)
	}
}

// A buffer that was freed stays what it was: operations that were recorded before still look at it.
func TestJoinLeavesFreedBuffers(t *testing.T) {
	a := NewHostMemory(0).NewArena("a")
	a.Join()
	const mib = 1 << 20
	a.Put(take(t, a, 16*mib)) // a slab for all
	first, second := take(t, a, mib), take(t, a, 2*mib)
	a.Put(first)
	a.Put(second)
	joined := take(t, a, 3*mib)
	cut := take(t, a, leastPiece)
	if len(first.Mem) != mib || len(second.Mem) != 2*mib || first == joined || second == cut {
		t.Errorf("%d and %d bytes are left of freed buffers", len(first.Mem), len(second.Mem))
	}
}
