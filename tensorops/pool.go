package tensorops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Pool keeps released buffers by size class. Training asks for the same sizes step
// after step, so after the first step nothing is allocated.
type Pool struct {
	memory *Memory
	name   string
	via    func(func() error) error // runs calls of the source

	// Guarded by memory.mu:
	free   [classes][]*Buffer
	slabs  slabs
	lent   Lent
	held   int64    // bytes, lent and free
	bound  int64    // of held, as far as what is free can go; 0: none
	lists  []uint64 // when those began that are not yet complete, in that order: they may use what is free since
	closed bool
}

// Bound makes the pool give back what is free before it asks for more than so many bytes in all. Without, it keeps what it was
// once asked for, in every size, such as those of a last microbatch that has fewer sequences. What is in use may be more.
func (p *Pool) Bound(bytes int64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.bound = bytes
}

// excess is by how much the pool would hold more than its bound with so many bytes more.
func (p *Pool) excess(bytes int) int64 {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.bound == 0 {
		return 0
	}
	return p.held + int64(bytes) - p.bound
}

// Take is Arena's.
func (p *Pool) Take(bytes int) (*Buffer, error) {
	if int64(bytes) > limitBufferBytes {
		return nil, fmt.Errorf("%w: %s asks for %d bytes in one buffer, the limit is %d", ErrOutOfMemory, p.name, bytes, limitBufferBytes)
	}
	if bytes >= leastPiece && p.joins() {
		return p.takePiece(bytes)
	}
	c, size := class(bytes)
	b, err := p.reuse(c, size)
	if b != nil || err != nil {
		return b, err
	}
	b, err = p.grow(size, size)
	if errors.Is(err, ErrOutOfMemory) {
		if larger := p.larger(c); larger != nil {
			return larger, nil
		}
	}
	return b, err
}

func (p *Pool) joins() bool {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	return p.slabs.on
}

// larger takes the smallest free buffer of a larger class, which is worth its waste where the
// source has no more; nil if there is none.
func (p *Pool) larger(c int) *Buffer {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.stats
	for c++; c < classes; c++ {
		last := len(p.free[c]) - 1
		if last < 0 {
			continue
		}
		b := p.free[c][last]
		if s.Limit > 0 && s.InUse+int64(b.bytes) > s.Limit {
			return nil // as all that are larger
		}
		s.InUse += int64(b.bytes)
		s.Peak = max(s.Peak, s.InUse)
		p.pop(c)
		return b
	}
	return nil
}

// pop takes the last free buffer of a class, which counts as in use already.
func (p *Pool) pop(c int) *Buffer {
	last := len(p.free[c]) - 1
	b := p.free[c][last]
	p.free[c][last] = nil
	p.free[c] = p.free[c][:last]
	p.memory.stats.Pooled -= int64(b.bytes)
	p.lent.Add(b)
	return b
}

// reuse counts a buffer as in use and takes it from the free ones; nil if there is none.
func (p *Pool) reuse(c, size int) (*Buffer, error) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if err := p.use(size); err != nil || len(p.free[c]) == 0 {
		return nil, err
	}
	return p.pop(c), nil
}

// use counts bytes as in use. It is called with memory.mu held.
func (p *Pool) use(size int) error {
	m := p.memory
	s := &m.stats
	switch {
	case p.closed:
		return p.errClosed()
	case s.Limit > 0 && s.InUse+int64(size) > s.Limit:
		return fmt.Errorf("%w: %s asks for %d bytes, %d of %d are in use: %s", ErrOutOfMemory, p.name, size, s.InUse, s.Limit, m.holders())
	}
	s.InUse += int64(size)
	s.Peak = max(s.Peak, s.InUse)
	return nil
}

func (p *Pool) errClosed() error { return fmt.Errorf("memory of %s: %w", p.name, ErrClosed) }

// grow asks the source for a buffer, of which so many bytes are counted as in use already.
func (p *Pool) grow(size, counted int) (*Buffer, error) {
	b := &Buffer{Home: p, bytes: size}
	err := p.via(func() error { return p.allocate(b) })
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.stats
	if err != nil {
		s.InUse -= int64(counted)
		return nil, fmt.Errorf("%s asks for %d bytes, %d are in use and %d kept for reuse: %s: %w", p.name, size, s.InUse, s.Pooled, m.holders(),
			err)
	}
	s.Taken = max(s.Taken, s.InUse+s.Pooled)
	p.held += int64(size)
	m.taken[p.name] = max(m.taken[p.name], p.held)
	return b, nil
}

// allocate runs where the source may be called.
func (p *Pool) allocate(b *Buffer) error {
	m := p.memory
	m.mu.Lock()
	closed := p.closed
	m.mu.Unlock()
	if closed {
		return p.errClosed()
	}
	// The limit is one of what is in use; what is kept for reuse goes as far as it can where both
	// together are more.
	if excess := m.excess(); excess > 0 {
		m.Trim(excess)
	}
	if excess := p.excess(b.bytes); excess > 0 {
		m.trim([]*Pool{p}, excess)
	}
	if err := m.source.Alloc(b); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.closed { // meanwhile
		m.source.Free(b)
		return p.errClosed()
	}
	p.lent.Add(b)
	return nil
}

// Put is Arena's.
func (p *Pool) Put(b *Buffer) {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.closed { // and has taken its memory back
		return
	}
	p.lent.Remove(b)
	m.stats.InUse -= int64(b.bytes)
	m.stats.Pooled += int64(b.bytes)
	m.clock++
	b.since = m.clock
	if b.of != nil {
		p.slabs.back(b.of, m.clock)
		return
	}
	c, _ := class(b.bytes)
	p.keep(c, b)
}

// keep puts a buffer among the free ones, of which the last is taken first. Device memory
// lies in descending order of addresses: so what is taken depends on what is free and not
// on the order in which it became so, and steps that do the same take the same addresses,
// which a device's graphs rely on. Host memory has no address here: what came last, and is
// in the caches, goes first.
func (p *Pool) keep(c int, b *Buffer) {
	if b.Addr == 0 {
		p.free[c] = append(p.free[c], b)
		return
	}
	at, _ := slices.BinarySearchFunc(p.free[c], b, func(other, b *Buffer) int { return cmp.Compare(b.Addr, other.Addr) })
	p.free[c] = slices.Insert(p.free[c], at, b)
}

// Hold counts a list that is being recorded, and returns by what Release knows it.
func (p *Pool) Hold() uint64 {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock++
	p.lists = append(p.lists, m.clock)
	return m.clock
}

// Release is for a list that is complete, which Hold has counted.
func (p *Pool) Release(hold uint64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if at, ok := slices.BinarySearch(p.lists, hold); ok {
		p.lists = slices.Delete(p.lists, at, at+1)
	}
}

// idle reports whether no list may use any more what came home then: all that had begun by then are
// complete. A list that began later can't know it. It is called with memory.mu held.
func (p *Pool) idle(since uint64) bool { return len(p.lists) == 0 || since < p.lists[0] }

// remove takes a buffer out of the free ones. It is called with memory.mu held.
func (p *Pool) remove(b *Buffer) {
	c, size := class(b.bytes)
	if at := slices.Index(p.free[c], b); at >= 0 {
		p.free[c] = slices.Delete(p.free[c], at, at+1)
		p.memory.stats.Pooled -= int64(size)
		p.held -= int64(size)
	}
}

// drop takes a slab out, out of which nothing is in use, and returns what the source takes back. It is called with
// memory.mu held.
func (p *Pool) drop(b *piece) *Buffer {
	p.memory.stats.Pooled -= int64(b.bytes)
	p.held -= int64(b.bytes)
	return p.slabs.drop(b)
}

// Trim gives back all that the pool keeps, when no list is left. It calls the source from where
// it is called, and not through via.
func (p *Pool) Trim() {
	p.memory.mu.Lock()
	kept := p.empty()
	p.memory.mu.Unlock()
	p.memory.discard(kept)
}

// Close is Arena's. No list that uses the memory may be under way.
func (p *Pool) Close() {
	// After the device's end there is nothing to give back.
	_ = p.via(func() error { p.close(); return nil })
}

// close is Close where the source may be called.
func (p *Pool) close() {
	m := p.memory
	m.mu.Lock()
	p.closed = true
	m.pools = slices.DeleteFunc(m.pools, func(other *Pool) bool { return other == p })
	all := p.empty()
	out := p.lent.Clear()
	m.stats.InUse -= total(out)
	m.stats.Pooled -= p.slabs.freeBytes()
	out = slices.DeleteFunc(out, func(b *Buffer) bool { return b.of != nil })
	for _, s := range p.slabs.all {
		out = append(out, s.root)
	}
	p.slabs = slabs{}
	m.mu.Unlock()
	m.discard(append(all, out...))
}

// empty takes out all free buffers. It is called with memory.mu held.
func (p *Pool) empty() []*Buffer {
	var all []*Buffer
	for c, free := range p.free {
		all = append(all, free...)
		p.free[c] = nil
	}
	p.memory.stats.Pooled -= total(all)
	p.held -= total(all)
	for _, b := range p.slabs.whole() {
		all = append(all, p.drop(b))
	}
	return all
}
