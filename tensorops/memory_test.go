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
	trims      int
	out        map[uint64]int
}

func newAddresses(bytes uint64) *addresses {
	s := &addresses{next: 4096, left: bytes, out: make(map[uint64]int)}
	s.memory = NewMemory(s, 0)
	return s
}

func (s *addresses) Alloc(b *Buffer) error {
	bytes := uint64(b.Bytes())
	for s.left < bytes && s.memory.Trim(int64(bytes)) > 0 {
		s.trims++
	}
	if s.left < bytes {
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
	hold := a.Hold()
	a.Put(mustTake(t, a, 2048))
	held := mustTake(t, b, 1024)
	_, err := b.Take(2048)
	const want = "b requests 2048 bytes, but 1024 are in use and 2048 kept for reuse: b has 1024 in use and keeps 0, a has 0 in use and keeps 2048: out of device memory: 1024 bytes left"
	if !errors.Is(err, ErrOutOfMemory) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	a.Release(hold)
	mustTake(t, b, 2048)
	if got := s.memory.Stats(); got != (MemoryStats{InUse: 3072, Peak: 3072, Taken: 3072}) {
		t.Errorf("%+v", got)
	}
	b.Put(held)
	b.Close()
	if _, err := b.Take(4097); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed pool: %v", err)
	}
	if _, err := a.Take(8192); err == nil || !strings.Contains(err.Error(), "no stream holds any") {
		t.Errorf("more than there is: %v", err)
	}
	mustTake(t, a, 256)
	s.memory.Close()
	if got := s.memory.Stats(); got.InUse != 0 || got.Pooled != 0 || len(s.out) != 0 || s.left != 4096 || calls != 3 {
		t.Errorf("%+v, %d buffers are out, %d calls", got, len(s.out), calls)
	}
}

// TestTrimsWhatIsIdle: of the memory that pools keep, that goes back which no list can use any
// more, also from a pool with lists under way; what has been free for longest first, and no more
// than is asked for.
func TestTrimsWhatIsIdle(t *testing.T) {
	s := newAddresses(8 * 1024)
	a, b := s.memory.NewArena("a"), s.memory.NewArena("b")
	var all []*Buffer
	for range 4 {
		all = append(all, mustTake(t, a, 1024))
	}
	oldest, old := a.Hold(), a.Hold()
	a.Put(all[0]) // both lists may use it
	a.Release(oldest)
	a.Put(all[1]) // the second may
	between := a.Hold()
	a.Put(all[2]) // so it may this, and the third as well
	if given := s.memory.Trim(1 << 20); given != 0 {
		t.Errorf("%d bytes are given back that a list may use", given)
	}
	a.Release(old)
	a.Put(all[3])
	// Now all but the last two are idle: the third list had begun when those became free.
	if given := s.memory.Trim(1); given != 1024 || s.out[all[0].Addr] != 0 || s.out[all[1].Addr] == 0 {
		t.Errorf("%d bytes are given back, %v are left", given, s.out)
	}
	if given := s.memory.Trim(1 << 20); given != 1024 || s.out[all[1].Addr] != 0 || s.out[all[2].Addr] == 0 {
		t.Errorf("%d bytes are given back, %v are left", given, s.out)
	}
	if got := s.memory.Stats(); got.Pooled != 2048 || got.InUse != 0 {
		t.Errorf("%+v", got)
	}
	a.Release(between)
	// Another pool, and another class, get what has become idle, and that alone.
	before := s.trims
	mustTake(t, b, 5*1024)
	if s.trims != before {
		t.Error("what lies free is taken first")
	}
	mustTake(t, b, 2*1024)
	if got := s.memory.Stats(); got.Pooled != 0 || s.trims != before+1 {
		t.Errorf("%+v", got)
	}
	if s.memory.TakenBy()["a"] != 4096 || a.held != 0 {
		t.Errorf("%v, a holds %d", s.memory.TakenBy(), a.held)
	}
}

// TestLargerClass: a pool whose lists are under way takes from its own larger buffers, the smallest
// that does, where the source has no more.
func TestLargerClass(t *testing.T) {
	s := newAddresses(7 * 1024)
	a := s.memory.NewArena("a")
	a.Hold()
	large, larger := mustTake(t, a, 3*1024), mustTake(t, a, 4*1024)
	a.Put(larger)
	a.Put(large)
	b := mustTake(t, a, 500)
	if b != large {
		t.Errorf("it is of %d bytes", b.Bytes())
	}
	if got := s.memory.Stats(); got.InUse != 3*1024 || got.Pooled != 4*1024 || got.Peak != 7*1024 {
		t.Errorf("%+v", got)
	}
	if _, err := a.Take(5 * 1024); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("more than any has: %v", err)
	}
	if mustTake(t, a, 500) != larger {
		t.Error("the next is not the next larger one")
	}
	a.Put(b)
	if mustTake(t, a, 3*1024) != large {
		t.Error("it does not come home to its class")
	}
	if got := s.memory.Stats(); got.InUse != 7*1024 || got.Pooled != 0 {
		t.Errorf("%+v", got)
	}
}

// TestLimitTrims: what is kept goes back where a limit would be passed together with it.
func TestLimitTrims(t *testing.T) {
	s := newAddresses(1 << 20)
	s.memory = NewMemory(s, 4096)
	a, b := s.memory.NewArena("a"), s.memory.NewArena("b")
	a.Put(mustTake(t, a, 3*1024))
	mustTake(t, b, 2*1024)
	if got := s.memory.Stats(); got.Pooled != 0 || got.InUse != 2*1024 || len(s.out) != 1 {
		t.Errorf("%+v, %d buffers are out", got, len(s.out))
	}
	hold := a.Hold()
	a.Put(mustTake(t, a, 2*1024))
	mustTake(t, b, 1024) // a list may use what a keeps
	if got := s.memory.Stats(); got.Pooled != 2*1024 || got.InUse != 3*1024 {
		t.Errorf("%+v", got)
	}
	a.Release(hold)
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
	if _, err := NewHostMemory(0).NewArena("a").Take(int(limitBufferBytes) + 1); !errors.Is(err, ErrOutOfMemory) {
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
