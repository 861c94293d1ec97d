package tensorops

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// addresses is a Source of device memory that ends.
type addresses struct {
	next, left uint64
	memory     *Memory
	out        map[uint64]int
}

func newAddresses(bytes uint64) *addresses {
	s := &addresses{next: 4096, left: bytes, out: make(map[uint64]int)}
	s.memory = NewMemory(s, 0)
	return s
}

func (s *addresses) Alloc(b *Buffer) error {
	bytes := uint64(b.Bytes())
	if s.left < bytes && (!s.memory.Trim() || s.left < bytes) {
		return fmt.Errorf("%w: %d bytes left", ErrOutOfMemory, s.left)
	}
	b.Addr = s.next
	s.next, s.left = s.next+bytes, s.left-bytes
	s.out[b.Addr] = b.Bytes()
	return nil
}

func (s *addresses) Free(b *Buffer) {
	s.left += uint64(s.out[b.Addr])
	delete(s.out, b.Addr)
}

func mustTake(t *testing.T, a Arena, bytes int) *Buffer {
	t.Helper()
	b, err := a.Take(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLowestAddress: whatever the order in which buffers come home, the lowest goes first.
func TestLowestAddress(t *testing.T) {
	a := newAddresses(1 << 20).memory.NewArena("a")
	var all []*Buffer
	for range 5 {
		all = append(all, mustTake(t, a, 1024))
	}
	for _, i := range []int{3, 0, 4, 1, 2} {
		a.Put(all[i])
	}
	for i, want := range all {
		if b := mustTake(t, a, 1024); b != want {
			t.Errorf("buffer %d is at %d, want %d", i, b.Addr, want.Addr)
		}
	}
}

// TestSourceEnds: what idle pools keep is given to whoever has none, but not what a list
// under way may use.
func TestSourceEnds(t *testing.T) {
	s := newAddresses(4096)
	calls := 0
	a := s.memory.NewArenaVia("a", func(f func() error) error { calls++; return f() })
	b := s.memory.NewArena("b")
	a.Hold()
	a.Put(mustTake(t, a, 2048))
	held := mustTake(t, b, 1024)
	_, err := b.Take(2048)
	const want = "b asks for 2048 bytes, 1024 are in use and 2048 kept for reuse: b has 1024 in use and keeps 0, a has 0 in use and keeps 2048: out of device memory: 1024 bytes left"
	if !errors.Is(err, ErrOutOfMemory) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	a.Release()
	mustTake(t, b, 2048)
	if got := s.memory.Stats(); got != (MemoryStats{InUse: 3072, Peak: 3072, Taken: 3072}) {
		t.Errorf("%+v", got)
	}
	b.Put(held)
	b.Close()
	if _, err := b.Take(4097); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed pool: %v", err)
	}
	if _, err := a.Take(8192); err == nil || !strings.Contains(err.Error(), "no stream has any") {
		t.Errorf("more than there is: %v", err)
	}
	mustTake(t, a, 256)
	s.memory.Close()
	if got := s.memory.Stats(); got.InUse != 0 || got.Pooled != 0 || len(s.out) != 0 || s.left != 4096 || calls != 3 {
		t.Errorf("%+v, %d buffers are out, %d calls", got, len(s.out), calls)
	}
}

// TestSourceBehindAThread: a pool that is closed before its source's thread comes to it
// takes nothing.
func TestSourceBehindAThread(t *testing.T) {
	s := newAddresses(4096)
	var a *Pool
	a = s.memory.NewArenaVia("a", func(f func() error) error { a.close(); return f() })
	if _, err := a.Take(1); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	if got := s.memory.Stats(); got.InUse != 0 || len(s.out) != 0 {
		t.Errorf("%+v, %d buffers are out", got, len(s.out))
	}
}

// TestTooLarge: a size that no machine has is refused before anybody is asked.
func TestTooLarge(t *testing.T) {
	if _, err := NewHostMemory(0).NewArena("a").Take(int(LimitBufferBytes) + 1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("error %v", err)
	}
}

// TestDryStream: a dry run counts and has no memory.
func TestDryStream(t *testing.T) {
	d := NewDryStream()
	l := d.NewList()
	x := l.Alloc(Float32, 64)
	if got := d.Memory(); got.InUse != 256 || x.Buffer().Mem != nil {
		t.Errorf("%+v", got)
	}
	l.Free(x)
	if err := Run(d, l); err != nil {
		t.Error(err)
	}
	CloseStream(d)
	if got := d.Memory(); got.InUse != 0 || got.Pooled != 0 || got.Peak != 256 {
		t.Errorf("%+v", got)
	}
}
