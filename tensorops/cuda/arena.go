package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// memory is the device's. It counts what its arenas hand out, and enforces one limit
// over all of them.
type memory struct {
	driver *driver.Driver

	mu     sync.Mutex
	stats  tensorops.MemoryStats
	arenas []*arena
	pieces map[uint64]struct{} // all that was taken from the driver
}

func newMemory(d *driver.Driver, limit int64) *memory {
	return &memory{driver: d, stats: tensorops.MemoryStats{Limit: limit}, pieces: make(map[uint64]struct{})}
}

// arena keeps released buffers by size class, as the host's arenas do: from the second
// step of a training on nothing is asked of the driver.
type arena struct {
	memory *memory
	name   string
	via    func(func() error) error // runs a call of the driver's on the thread that has the context

	// Guarded by memory.mu:
	free   [tensorops.SizeClasses][]*tensorops.Buffer
	inUse  int64
	lists  int // recorded and not yet complete: they may use what is free, in their order
	closed bool
}

func (m *memory) newArena(name string, via func(func() error) error) *arena {
	a := &arena{memory: m, name: name, via: via}
	m.mu.Lock()
	m.arenas = append(m.arenas, a)
	m.mu.Unlock()
	return a
}

func (a *arena) Take(bytes int) (*tensorops.Buffer, error) {
	if int64(bytes) > tensorops.LimitBufferBytes {
		return nil, fmt.Errorf("%w: %s asks for %d bytes in one buffer, the limit is %d",
			tensorops.ErrOutOfMemory, a.name, bytes, tensorops.LimitBufferBytes)
	}
	class, size := tensorops.SizeClass(bytes)
	m := a.memory
	m.mu.Lock()
	s := &m.stats
	if s.Limit > 0 && s.InUse+int64(size) > s.Limit {
		err := fmt.Errorf("%w: %s asks for %d bytes, %d of %d are in use: %s", tensorops.ErrOutOfMemory, a.name, size, s.InUse, s.Limit, m.holders())
		m.mu.Unlock()
		return nil, err
	}
	a.use(int64(size))
	s.Peak = max(s.Peak, s.InUse)
	if k := len(a.free[class]) - 1; k >= 0 {
		b := a.free[class][k]
		a.free[class][k] = nil
		a.free[class] = a.free[class][:k]
		s.Pooled -= int64(size)
		m.mu.Unlock()
		return b, nil
	}
	m.mu.Unlock()
	var at driver.Address
	err := a.via(func() (err error) {
		at, err = m.take(size)
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		a.use(-int64(size))
		return nil, fmt.Errorf("%s asks for %d bytes, %d are in use and %d kept for lists under way: %s: %w", a.name, size, s.InUse, s.Pooled, m.holders(), err)
	}
	s.Taken = max(s.Taken, s.InUse+s.Pooled)
	return tensorops.NewDeviceBuffer(uint64(at), size, a), nil
}

// use counts what is handed out, or comes back. It is called with memory.mu held.
func (a *arena) use(bytes int64) {
	a.inUse += bytes
	a.memory.stats.InUse += bytes
}

// holders says which arenas have how much, the largest first. It is called with mu held.
func (m *memory) holders() string {
	arenas := slices.Clone(m.arenas)
	slices.SortStableFunc(arenas, func(a, b *arena) int { return cmp.Compare(b.inUse, a.inUse) })
	var all []string
	for _, a := range arenas {
		kept := int64(0)
		for _, class := range a.free {
			for _, b := range class {
				kept += int64(b.Bytes())
			}
		}
		if a.inUse+kept > 0 {
			all = append(all, fmt.Sprintf("%s has %d in use and keeps %d", a.name, a.inUse, kept))
		}
	}
	if all == nil {
		return "no stream has any"
	}
	return strings.Join(all, ", ")
}

// take asks the driver for memory; if it has none, once more without what idle arenas
// keep. It is for the owner's thread.
func (m *memory) take(size int) (driver.Address, error) {
	at, err := m.driver.Alloc(size)
	if driver.IsOutOfMemory(err) && m.trim() {
		at, err = m.driver.Alloc(size)
	}
	if driver.IsOutOfMemory(err) {
		return 0, fmt.Errorf("%w: %w", tensorops.ErrOutOfMemory, err)
	}
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.pieces[uint64(at)] = struct{}{}
	m.mu.Unlock()
	return at, nil
}

// trim gives back what arenas keep whose lists are all complete; false if that is
// nothing. A list that is yet to run may use a buffer that is free already.
func (m *memory) trim() bool {
	m.mu.Lock()
	var kept []*tensorops.Buffer
	for _, a := range m.arenas {
		if a.lists == 0 {
			kept = append(kept, a.empty()...)
		}
	}
	m.mu.Unlock()
	for _, b := range kept {
		m.giveBack(b)
	}
	return len(kept) > 0
}

// empty takes out all free buffers. It is called with memory.mu held.
func (a *arena) empty() []*tensorops.Buffer {
	var all []*tensorops.Buffer
	for i, class := range a.free {
		all = append(all, class...)
		a.free[i] = nil
	}
	for _, b := range all {
		a.memory.stats.Pooled -= int64(b.Bytes())
	}
	return all
}

// giveBack gives a buffer's memory back to the driver. It is for the owner's thread.
func (m *memory) giveBack(b *tensorops.Buffer) {
	m.mu.Lock()
	delete(m.pieces, b.Addr)
	m.mu.Unlock()
	// Memory that the driver does not take back is lost until the context ends; nothing
	// can be done about it here.
	_ = m.driver.Free(driver.Address(b.Addr))
}

func (a *arena) Put(b *tensorops.Buffer) {
	class, size := tensorops.SizeClass(b.Bytes())
	m := a.memory
	m.mu.Lock()
	a.use(-int64(size))
	closed := a.closed
	if !closed {
		m.stats.Pooled += int64(size)
		a.keep(class, b)
	}
	m.mu.Unlock()
	if closed {
		// After the device's end there is no memory to give back.
		_ = a.via(func() error { m.giveBack(b); return nil })
	}
}

// keep puts a buffer among the free ones, which lie in descending order of their addresses:
// the lowest is taken first. So what is taken depends on what is free and not on the order
// in which it became so, and steps that do the same take the same addresses (graph.go).
// It is called with memory.mu held.
func (a *arena) keep(class int, b *tensorops.Buffer) {
	at, _ := slices.BinarySearchFunc(a.free[class], b, func(other, b *tensorops.Buffer) int { return cmp.Compare(b.Addr, other.Addr) })
	a.free[class] = slices.Insert(a.free[class], at, b)
}

// hold counts a list that is being recorded, release one that is complete.
func (a *arena) hold() { a.count(1) }

func (a *arena) release() { a.count(-1) }

func (a *arena) count(by int) {
	a.memory.mu.Lock()
	a.lists += by
	a.memory.mu.Unlock()
}

// close gives back what the arena keeps, and from then on what comes home. It is for
// the owner's thread, when no list is left.
func (a *arena) close() {
	m := a.memory
	m.mu.Lock()
	a.closed = true
	kept := a.empty()
	m.arenas = slices.DeleteFunc(m.arenas, func(other *arena) bool { return other == a })
	m.mu.Unlock()
	for _, b := range kept {
		m.giveBack(b)
	}
}

// close gives all memory back, in use or not. It is for the owner's thread, at its end.
func (m *memory) close() {
	m.mu.Lock()
	pieces := m.pieces
	m.pieces = nil
	m.mu.Unlock()
	for at := range pieces {
		_ = m.driver.Free(driver.Address(at)) // the context ends in any case
	}
}

// Stats tells how much is in use.
func (m *memory) Stats() tensorops.MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}
