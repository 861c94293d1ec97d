package tensorops

import (
	"fmt"
	"math/bits"
	"sync"
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
// sizes step after step, so after the first step nothing is allocated.
type hostArena struct {
	memory *HostMemory
	name   string
	free   [classes][]*Buffer // guarded by memory.mu
}

// Sizes are rounded up to one of four classes in each power of two, so that at
// most a fifth of a buffer is waste.
const (
	minClassBytes = 64
	classes       = 4 * 52
)

// class returns the class of a size and the bytes of that class.
func class(bytes int) (int, int) {
	n := max(bytes, minClassBytes)
	exp := bits.Len(uint(n-1)) - 1 // 2^exp < n <= 2^(exp+1), for n > 64
	if n == minClassBytes {
		return 0, minClassBytes
	}
	quarter := 1 << (exp - 2)
	step := (n - 1<<exp + quarter - 1) / quarter // 1 to 4
	return 4*(exp-6) + step, 1<<exp + step*quarter
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
	m.mu.Unlock()
	if m.dry {
		return &Buffer{Home: a, bytes: size}, nil
	}
	// A slice of float64 is aligned for every element type.
	words := make([]float64, (size+7)/8)
	return &Buffer{Mem: bytesOf(words), Home: a, bytes: size}, nil
}

func (a *hostArena) Put(b *Buffer) {
	c, size := class(b.bytes)
	m := a.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.InUse -= int64(size)
	if len(a.free[c]) < LimitPoolKeep {
		m.stats.Pooled += int64(size)
		a.free[c] = append(a.free[c], b)
	}
}
