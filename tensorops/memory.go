package tensorops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Memory is the memory of a device. It counts what its pools hand out and enforces one limit for
// all of them.
type Memory struct {
	source Source

	mu    sync.Mutex
	clock uint64 // counts events that change what may be freed
	stats MemoryStats
	pools []*Pool          // the open pools
	taken map[string]int64 // by the name of a pool: the largest amount taken from the source
}

// Source allocates and frees the memory of a device.
type Source interface {
	// Alloc gives a buffer memory of its size, or fails with ErrOutOfMemory.
	Alloc(*Buffer) error
	// Free frees a buffer's memory. Memory that the system does not take back is lost.
	Free(*Buffer)
}

// NewMemory makes a Memory with a limit in bytes; 0 means none.
func NewMemory(source Source, limitBytes int64) *Memory {
	return &Memory{source: source, stats: MemoryStats{Limit: limitBytes}, taken: make(map[string]int64)}
}

// NewHostMemory makes memory that the host can address.
func NewHostMemory(limitBytes int64) *Memory { return NewMemory(host{}, limitBytes) }

// TakenBy returns, for the pools of each name, including closed ones, the largest number of bytes
// taken from the source at a time.
func (m *Memory) TakenBy() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.taken)
}

// Stats returns how much memory is in use.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// NewArena makes a pool over this memory. The pool calls the source from the goroutine of its
// caller.
func (m *Memory) NewArena(name string) *Pool {
	return m.NewArenaVia(name, func(f func() error) error { return f() })
}

// NewArenaVia makes a pool whose Take and Close call the source through via, for a source that only
// one thread may call.
func (m *Memory) NewArenaVia(name string, via func(func() error) error) *Pool {
	p := &Pool{memory: m, name: name, via: via}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools = append(m.pools, p)
	return p
}

// Trim frees at least the given number of bytes of free memory that pools keep, if no list may
// still use them, and returns how many bytes it freed. Memory that has been free longest goes
// first, since it is least likely to be needed again. Trim calls the source from the goroutine of
// its caller.
func (m *Memory) Trim(bytes int64) (given int64) {
	m.mu.Lock()
	pools := slices.Clone(m.pools)
	m.mu.Unlock()
	return m.trim(pools, bytes)
}

// trim is Trim for some pools.
func (m *Memory) trim(pools []*Pool, bytes int64) (given int64) {
	m.mu.Lock()
	type candidate struct {
		since uint64
		bytes int
		take  func() *Buffer
	}
	var idle []candidate
	for _, p := range pools {
		for _, free := range p.free {
			for _, b := range free {
				if p.idle(b.since) {
					idle = append(idle, candidate{b.since, b.bytes, func() *Buffer { p.remove(b); return b }})
				}
			}
		}
		for _, b := range p.slabs.whole() {
			if p.idle(b.since) {
				idle = append(idle, candidate{b.since, b.bytes, func() *Buffer { return p.drop(b) }})
			}
		}
	}
	slices.SortFunc(idle, func(a, b candidate) int { return cmp.Compare(a.since, b.since) })
	var out []*Buffer
	for _, c := range idle {
		if given >= bytes {
			break
		}
		given += int64(c.bytes)
		out = append(out, c.take())
	}
	m.mu.Unlock()
	m.discard(out)
	return given
}

// excess returns by how much the held memory exceeds the limit, before the source allocates a
// buffer that already counts as in use.
func (m *Memory) excess() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats.Limit == 0 {
		return 0
	}
	return m.stats.InUse + m.stats.Pooled - m.stats.Limit
}

// Close closes every pool. It calls the source from the goroutine of its caller.
func (m *Memory) Close() {
	m.mu.Lock()
	pools := slices.Clone(m.pools)
	m.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
}

// discard frees the memory of buffers.
func (m *Memory) discard(all []*Buffer) {
	for _, b := range all {
		m.source.Free(b)
	}
}

// holders says how much each pool holds, the largest first. The caller must hold mu.
func (m *Memory) holders() string {
	type holder struct {
		name        string
		inUse, kept int64
	}
	var all []holder
	for _, p := range m.pools {
		h := holder{name: p.name, inUse: p.lent.bytes()}
		for _, free := range p.free {
			h.kept += total(free)
		}
		h.kept += p.slabs.freeBytes()
		if h.inUse+h.kept > 0 {
			all = append(all, h)
		}
	}
	if all == nil {
		return "no stream holds any"
	}
	slices.SortStableFunc(all, func(a, b holder) int { return cmp.Compare(b.inUse, a.inUse) })
	var text []string
	for _, h := range all {
		text = append(text, fmt.Sprintf("%s has %d in use and keeps %d", h.name, h.inUse, h.kept))
	}
	return strings.Join(text, ", ")
}

// total returns the size of buffers in bytes.
func total(all []*Buffer) int64 {
	bytes := int64(0)
	for _, b := range all {
		bytes += int64(b.bytes)
	}
	return bytes
}
