package tensorops

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestClasses: a class is as large as asked for, wastes at most a sixteenth, is its
// own class, and larger sizes have larger classes.
func TestClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.OneOf(rapid.IntRange(0, 1000), rapid.IntRange(0, int(limitBufferBytes))).Draw(t, "bytes")
		c, size := class(bytes)
		if c < 0 || c >= classes || size < bytes || size%16 != 0 {
			t.Fatalf("%d bytes are of class %d with %d", bytes, c, size)
		}
		if bytes >= minClassBytes && 16*(size-bytes) > size {
			t.Fatalf("%d of %d bytes are waste", size-bytes, size)
		}
		if c2, size2 := class(size); c2 != c || size2 != size {
			t.Fatalf("%d bytes are of class %d with %d, its own size of class %d with %d", bytes, c, size, c2, size2)
		}
		if c2, size2 := class(size + 1); c2 != c+1 || size2 <= size {
			t.Fatalf("class %d has %d bytes, a byte more is class %d with %d", c, size, c2, size2)
		}
	})
}

func take(t *testing.T, a Arena, bytes int) *Buffer {
	t.Helper()
	b, err := a.Take(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Mem) < bytes {
		t.Fatalf("%d bytes for %d", len(b.Mem), bytes)
	}
	return b
}

// TestMatch: a pool that matches another one needs no more memory for what that one has had, and keeps what it has.
func TestMatch(t *testing.T) {
	m, dry := NewHostMemory(0), NewDryStream()
	like := dry.Arena().(*Pool)
	for _, sizes := range [][]int{{1000, 1000, 1 << 20}, {1 << 20, 5000}} {
		var all []*Buffer
		for _, n := range sizes {
			b, err := like.Take(n)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		for _, b := range all[1:] { // the first one stays in use
			like.Put(b)
		}
	}
	p := m.NewArena("p")
	kept := take(t, p, 1000)
	kept.Mem[0] = 7
	p.Match(like)
	p.Populate(func() bool { return false })
	was := m.Stats()
	if want := dry.Memory().Taken; was.InUse+was.Pooled != want || was.InUse != 1024 {
		t.Errorf("%+v, want %d bytes, of which 1024 are in use", was, want)
	}
	for _, n := range []int{1000, 1 << 20, 5000} {
		take(t, p, n)
	}
	if got := m.Stats(); got.Taken != was.Taken || kept.Mem[0] != 7 {
		t.Errorf("%+v after %+v: it has taken more memory; the first byte is %d, want 7", got, was, kept.Mem[0])
	}
}

func TestArenaReusesBuffers(t *testing.T) {
	m := NewHostMemory(0)
	a, other := m.NewArena("a"), m.NewArena("other")
	b := take(t, a, 1000)
	if b.Home != a {
		t.Error("the buffer does not know its home")
	}
	a.Put(b)
	if got := m.Stats(); got != (MemoryStats{Pooled: 1024, Peak: 1024, Taken: 1024}) {
		t.Errorf("after one buffer: %+v", got)
	}
	if take(t, other, 1000) == b {
		t.Error("the buffer was given to another arena")
	}
	if take(t, a, 100) == b {
		t.Error("the buffer was given to a smaller class")
	}
	if take(t, a, 1020) != b {
		t.Error("the buffer was not given again")
	}
	if got := m.Stats(); got != (MemoryStats{InUse: 2*1024 + 256, Peak: 2*1024 + 256, Taken: 2*1024 + 256}) {
		t.Errorf("with three buffers: %+v", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	m := NewHostMemory(3000)
	a, b := m.NewArena("a"), m.NewArena("b")
	held := take(t, a, 1024)
	take(t, b, 1024)
	_, err := a.Take(1024)
	const want = "out of device memory: a requests 1024 bytes, but 2048 of 3000 are in use: a has 1024 in use and keeps 0, b has 1024 in use and keeps 0"
	if !errors.Is(err, ErrOutOfMemory) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	a.Put(held)
	take(t, b, 1500)
	if got := m.Stats(); got.InUse != 1024+1536 || got.Limit != 3000 {
		t.Errorf("stats %+v", got)
	}
}

// TestArenaKeepsAll: what is free may still be used by a list that was recorded before, so
// nothing goes back to the system before the stream's end.
func TestArenaKeepsAll(t *testing.T) {
	m := NewHostMemory(0)
	a := m.NewArena("a")
	var held []*Buffer
	for range 5000 {
		held = append(held, take(t, a, 256))
	}
	for _, b := range held {
		a.Put(b)
	}
	if got := m.Stats(); got.InUse != 0 || got.Pooled != 256*5000 {
		t.Errorf("stats %+v", got)
	}
	a.Trim()
	if got := m.Stats(); got.InUse != 0 || got.Pooled != 0 || held[0].Mem != nil {
		t.Errorf("after trimming: %+v", got)
	}
}

func TestArenaIsSafe(t *testing.T) {
	m := NewHostMemory(0)
	a := m.NewArena("a")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 500 {
				b, err := a.Take(64 + 16*(j%3))
				if err != nil {
					t.Error(err)
					return
				}
				b.Mem[0] = byte(i) // the race detector sees two owners
				a.Put(b)
			}
		})
	}
	all.Wait()
	if got := m.Stats(); got.InUse != 0 {
		t.Errorf("stats %+v", got)
	}
}

// TestArenaClose: a closed arena has given all back, and a buffer that comes home late
// changes nothing. Other arenas are left alone.
func TestArenaClose(t *testing.T) {
	m := NewHostMemory(0)
	a, other := m.NewArena("a"), m.NewArena("other")
	stays := take(t, other, 1024)
	var out []*Buffer
	for i := range 9 {
		out = append(out, take(t, a, 1024<<(i%3)), take(t, a, 1<<20))
	}
	for _, i := range []int{0, 5, 17, 9} { // kept for reuse, two of them again in use
		a.Put(out[i])
	}
	take(t, a, 1<<20)
	late, err := NewTensor(a, Float32, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	peak := m.Stats().Peak
	a.Close()
	if got := m.Stats(); got.InUse != 1024 || got.Pooled != 0 || got.Peak != peak {
		t.Errorf("after one of two arenas: %+v, the peak was %d", got, peak)
	}
	late.Release()
	a.Put(out[1])
	a.Close()
	if _, err := a.Take(1); !errors.Is(err, ErrClosed) || err.Error() != "memory of a: device stream is closed" {
		t.Errorf("a closed arena gives memory: %v", err)
	}
	if got := m.Stats(); got.InUse != 1024 || got.Pooled != 0 || len(stays.Mem) != 1024 {
		t.Errorf("after late buffers: %+v", got)
	}
	m.Close()
	if got := m.Stats(); got.InUse != 0 || got.Pooled != 0 || len(m.pools) != 0 {
		t.Errorf("after all arenas: %+v", got)
	}
}

// TestArenaClosesWhileItIsUsed: however Take, Put and Close meet, nothing stays in use.
func TestArenaClosesWhileItIsUsed(t *testing.T) {
	for i := range 100 {
		m := NewHostMemory(0)
		a := m.NewArena("a")
		if i%2 == 1 {
			a.Join()
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					b, err := a.Take(1 << 18)
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					a.Put(b)
				}
			})
		}
		a.Close()
		all.Wait()
		if got := m.Stats(); got.InUse != 0 || got.Pooled != 0 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestBound: a pool with a bound gives back what is free before it holds more, keeps what a list may still use, and hands out more
// than its bound where all of it is in use.
func TestBound(t *testing.T) {
	for name, join := range map[string]bool{"classes": false, "slabs": true} {
		const size = 4 << 20
		m := NewHostMemory(0)
		a, other := m.NewArena("a"), m.NewArena("other")
		if join {
			a.Join()
		}
		a.Bound(3 * size)
		other.Put(take(t, other, size))
		hold := a.Hold()
		one, two := take(t, a, size), take(t, a, size)
		a.Put(one) // a list that is not complete may use it
		kept := take(t, a, size+size/2)
		if got := m.TakenBy()["a"]; got < 3*size+size/2 {
			t.Errorf("%s: it took %d bytes while a list could use what was free", name, got)
		}
		a.Release(hold)
		a.Put(kept)
		next := take(t, a, 2*size-size/4)
		held := func() int64 { s := m.Stats(); return s.InUse + s.Pooled - size } // without the other's
		if got := held(); got > 3*size {
			t.Errorf("%s: it holds %d bytes, its bound is %d", name, got, 3*size)
		}
		if got := m.Stats().Pooled; got < size {
			t.Errorf("%s: another pool's memory went: %d bytes are free", name, got)
		}
		large := take(t, a, 3*size)
		if got, inUse := held(), int64(6*size-size/4); got < inUse || got > 6*size {
			t.Errorf("%s: it holds %d bytes with %d in use", name, got, inUse)
		}
		for _, b := range []*Buffer{two, next, large} {
			a.Put(b)
		}
		a.Close()
		other.Close()
		if got := m.Stats(); got.InUse != 0 || got.Pooled != 0 {
			t.Errorf("%s: after all: %+v", name, got)
		}
	}
}
