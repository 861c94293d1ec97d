package tensorops

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/troupe-ml/troupe/internal/hostmem"
)

// HostMemory is the memory of a device that the host can address. It counts
// what its arenas hand out and enforces one limit over all of them.
type HostMemory struct {
	dry   bool // counts, and has no memory behind it
	mu    sync.Mutex
	stats MemoryStats
}

// NewHostMemory makes one with a limit in bytes; 0 means none.
func NewHostMemory(limitBytes int64) *HostMemory {
	return &HostMemory{stats: MemoryStats{Limit: limitBytes}}
}

// Stats tells how much is in use.
func (m *HostMemory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// NewArena makes a pool over this memory.
func (m *HostMemory) NewArena(name string) Arena {
	return &hostArena{memory: m, name: name}
}

// hostArena keeps released buffers by size class. Training asks for the same
// sizes step after step, so after the first step nothing is allocated. Large
// buffers lie outside of the collector's heap: see package hostmem.
type hostArena struct {
	memory *HostMemory
	name   string
	// Guarded by memory.mu:
	free   [classes][]*Buffer
	closed bool // nothing is kept any more
}

// Sizes are rounded up to one of sixteen classes in each power of two, so that at
// most a sixteenth of a large buffer is waste.
const (
	minClassBytes = 256
	perDoubling   = 16
	classes       = perDoubling * 50
)

// class returns the class of a size and the bytes of that class.
func class(bytes int) (int, int) {
	if bytes <= minClassBytes {
		return 0, minClassBytes
	}
	exp := bits.Len(uint(bytes-1)) - 1 // 2^exp < bytes <= 2^(exp+1)
	part := 1 << exp / perDoubling
	step := (bytes - 1<<exp + part - 1) / part
	return perDoubling*(exp-8) + step, 1<<exp + step*part
}

func (a *hostArena) Take(bytes int) (*Buffer, error) {
	if int64(bytes) > LimitBufferBytes {
		return nil, fmt.Errorf("%w: %s asks for %d bytes in one buffer, the limit is %d", ErrOutOfMemory, a.name, bytes, LimitBufferBytes)
	}
	c, size := class(bytes)
	m := a.memory
	m.mu.Lock()
	s := &m.stats
	if s.Limit > 0 && s.InUse+int64(size) > s.Limit {
		err := fmt.Errorf("%w: %s asks for %d bytes, %d of %d are in use", ErrOutOfMemory, a.name, size, s.InUse, s.Limit)
		m.mu.Unlock()
		return nil, err
	}
	s.InUse += int64(size)
	s.Peak = max(s.Peak, s.InUse)
	if k := len(a.free[c]) - 1; k >= 0 {
		b := a.free[c][k]
		a.free[c][k] = nil
		a.free[c] = a.free[c][:k]
		s.Pooled -= int64(size)
		m.mu.Unlock()
		return b, nil
	}
	s.Taken = max(s.Taken, s.InUse+s.Pooled)
	m.mu.Unlock()
	if m.dry {
		return &Buffer{Home: a, bytes: size}, nil
	}
	p, err := hostmem.New(size)
	if err != nil {
		m.mu.Lock()
		s.InUse -= int64(size)
		m.mu.Unlock()
		return nil, fmt.Errorf("%w: %s asks for %d bytes: %w", ErrOutOfMemory, a.name, size, err)
	}
	return &Buffer{Mem: p.Bytes, Home: a, piece: p, bytes: size}, nil
}

func (a *hostArena) Put(b *Buffer) {
	c, size := class(b.bytes)
	m := a.memory
	m.mu.Lock()
	m.stats.InUse -= int64(size)
	keep := !a.closed && len(a.free[c]) < LimitPoolKeep
	if keep {
		m.stats.Pooled += int64(size)
		a.free[c] = append(a.free[c], b)
	}
	m.mu.Unlock()
	if !keep {
		b.discard()
	}
}

// CloseArena gives the memory that a host arena keeps back to the system, and
// later what is still in use, as it is released. Other arenas are left alone.
func CloseArena(arena Arena) {
	a, ok := arena.(*hostArena)
	if !ok {
		return
	}
	m := a.memory
	m.mu.Lock()
	free := a.free
	a.free, a.closed = [classes][]*Buffer{}, true
	for _, class := range free {
		for _, b := range class {
			m.stats.Pooled -= int64(b.bytes)
		}
	}
	m.mu.Unlock()
	for _, class := range free {
		for _, b := range class {
			b.discard()
		}
	}
}

// discard gives a host buffer's memory back to the system.
func (b *Buffer) discard() {
	b.Mem = nil
	if b.piece != nil {
		// Memory that the system does not take back is lost until the process
		// ends; nothing can be done about it here.
		_ = b.piece.Free()
	}
}
