package tensorops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// Pool keeps released buffers by size class. Training needs the same sizes in every step, so after
// the first step nothing is allocated.
type Pool struct {
	memory *Memory
	name   string
	via    func(func() error) error // runs the calls of the source

	// memory.mu guards:
	free   [classes][]*Buffer
	slabs  slabs
	lent   Lent
	uncut  int64    // bytes of lent slabs that do not count as in use, until they are cut
	held   int64    // bytes, lent and free
	bound  int64    // limit of held, reached by releasing free buffers; 0: none
	lists  []uint64 // start times of the incomplete lists, in order: they may use buffers freed since
	closed bool
}

// Match takes memory for later lists, until the pool has had as much in each size class as another one that has recorded them. Without room
// for it, or after Join, it takes less: lists take it when they need it.
func (p *Pool) Match(other *Pool) {
	if p.joins() {
		return
	}
	var took []*Buffer
	want, use := other.sizes(true), p.sizes(false)
	for size, n := range want {
		for range n - use[size] {
			b, err := p.Take(size)
			if err != nil {
				break
			}
			took = append(took, b)
		}
	}
	for _, b := range took {
		p.Put(b)
	}
}

// sizes counts the buffers of each size that are in use, with free those that are free, too.
func (p *Pool) sizes(free bool) map[int]int {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	n := make(map[int]int)
	for _, b := range p.lent.all {
		n[b.bytes]++
	}
	for _, all := range p.free {
		if free && len(all) > 0 {
			n[all[0].bytes] += len(all)
		}
	}
	return n
}

// Populate makes the system give the pages of all memory of the pool now; see hostmem.Piece.Populate. No list may be under way.
func (p *Pool) Populate(ends func() bool) {
	var all []*hostmem.Piece
	add := func(b *Buffer) {
		if b.piece != nil {
			all = append(all, b.piece)
		}
	}
	p.memory.mu.Lock()
	for _, b := range p.lent.all {
		add(b)
	}
	for _, free := range p.free {
		for _, b := range free {
			add(b)
		}
	}
	for _, s := range p.slabs.all {
		add(s.root)
	}
	p.memory.mu.Unlock()
	for _, one := range all {
		one.Populate(ends)
	}
}

// Bound makes the pool release free buffers before it takes more than the given number of bytes in
// total. Without a bound it keeps every buffer that was ever needed, including the sizes of a last
// microbatch with fewer sequences. Buffers in use may exceed the bound.
func (p *Pool) Bound(bytes int64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.bound = bytes
}

// excess returns by how much the pool would exceed its bound with the given number of additional
// bytes.
func (p *Pool) excess(bytes int) int64 {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.bound == 0 {
		return 0
	}
	return p.held + int64(bytes) - p.bound
}

// Take implements Arena.
func (p *Pool) Take(bytes int) (*Buffer, error) {
	if int64(bytes) > limitBufferBytes {
		return nil, fmt.Errorf("%w: %s requests a buffer of %d bytes; the limit is %d", ErrOutOfMemory, p.name, bytes, limitBufferBytes)
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

// larger takes the smallest free buffer of a larger class, which is better than failing if the
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
			return nil // all larger ones are too large as well
		}
		s.InUse += int64(b.bytes)
		s.Peak = max(s.Peak, s.InUse)
		p.pop(c)
		return b
	}
	return nil
}

// pop takes the last free buffer of a class. The buffer already counts as in use.
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

// use counts bytes as in use. The caller must hold memory.mu.
func (p *Pool) use(size int) error {
	m := p.memory
	s := &m.stats
	switch {
	case p.closed:
		return p.errClosed()
	case s.Limit > 0 && s.InUse+int64(size) > s.Limit:
		return fmt.Errorf("%w: %s requests %d bytes, but %d of %d are in use: %s", ErrOutOfMemory, p.name, size, s.InUse, s.Limit, m.holders())
	}
	s.InUse += int64(size)
	s.Peak = max(s.Peak, s.InUse)
	return nil
}

func (p *Pool) errClosed() error { return fmt.Errorf("memory of %s: %w", p.name, ErrClosed) }

// grow takes a buffer from the source; counted of its bytes already count as in use.
func (p *Pool) grow(size, counted int) (*Buffer, error) {
	b := &Buffer{Home: p, bytes: size}
	err := p.via(func() error { return p.allocate(b, counted) })
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.stats
	if err != nil {
		s.InUse -= int64(counted)
		return nil, fmt.Errorf("%s requests %d bytes, but %d are in use and %d kept for reuse: %s: %w", p.name, size, s.InUse, s.Pooled,
			m.holders(),
			err)
	}
	s.Taken = max(s.Taken, s.InUse+s.Pooled)
	p.held += int64(size)
	m.taken[p.name] = max(m.taken[p.name], p.held)
	return b, nil
}

// allocate is the part of grow that runs on the goroutine that may call the source.
func (p *Pool) allocate(b *Buffer, counted int) error {
	m := p.memory
	m.mu.Lock()
	closed := p.closed
	m.mu.Unlock()
	if closed {
		return p.errClosed()
	}
	// The limit applies to memory in use. If that and the memory kept for reuse exceed the limit
	// together, free buffers are released.
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
	if p.closed { // closed meanwhile
		m.source.Free(b)
		return p.errClosed()
	}
	p.lent.Add(b)
	p.uncut += int64(b.bytes - counted)
	return nil
}

// Put implements Arena.
func (p *Pool) Put(b *Buffer) {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.closed { // it has already freed the memory
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

// keep adds a buffer to the free ones; the last of them is taken first. Device memory is kept in
// descending order of addresses. So the buffer that is taken depends on which are free, not on the
// order in which they were freed. Equal steps then use equal addresses, on which a device's graphs
// rely. Host memory has no address here: the buffer freed last is still in the caches and is taken
// first.
func (p *Pool) keep(c int, b *Buffer) {
	if b.Addr == 0 {
		p.free[c] = append(p.free[c], b)
		return
	}
	at, _ := slices.BinarySearchFunc(p.free[c], b, func(other, b *Buffer) int { return cmp.Compare(b.Addr, other.Addr) })
	p.free[c] = slices.Insert(p.free[c], at, b)
}

// Hold counts a list that is being recorded, and returns the number to pass to Release.
func (p *Pool) Hold() uint64 {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock++
	p.lists = append(p.lists, m.clock)
	return m.clock
}

// Release says that a list which Hold has counted is complete.
func (p *Pool) Release(hold uint64) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if at, ok := slices.BinarySearch(p.lists, hold); ok {
		p.lists = slices.Delete(p.lists, at, at+1)
	}
}

// idle reports whether no list may still use memory freed at the given time: all lists that had
// started by then are complete, and later lists do not know of it. The caller must hold memory.mu.
func (p *Pool) idle(since uint64) bool { return len(p.lists) == 0 || since < p.lists[0] }

// remove takes a buffer out of the free ones. The caller must hold memory.mu.
func (p *Pool) remove(b *Buffer) {
	c, size := class(b.bytes)
	if at := slices.Index(p.free[c], b); at >= 0 {
		p.free[c] = slices.Delete(p.free[c], at, at+1)
		p.memory.stats.Pooled -= int64(size)
		p.held -= int64(size)
	}
}

// drop takes out a slab of which nothing is in use, and returns the buffer to free at the source.
// The caller must hold memory.mu.
func (p *Pool) drop(b *piece) *Buffer {
	p.memory.stats.Pooled -= int64(b.bytes)
	p.held -= int64(b.bytes)
	return p.slabs.drop(b)
}

// Trim frees all memory that the pool keeps, if no list is incomplete. It calls the source from the
// goroutine of its caller, not through via.
func (p *Pool) Trim() {
	p.memory.mu.Lock()
	kept := p.empty()
	p.memory.mu.Unlock()
	p.memory.discard(kept)
}

// Close implements Arena. No list that uses the memory may be incomplete.
func (p *Pool) Close() {
	// After the device is closed there is nothing to free.
	_ = p.via(func() error { p.close(); return nil })
}

// close is Close on the goroutine that may call the source.
func (p *Pool) close() {
	m := p.memory
	m.mu.Lock()
	p.closed = true
	m.pools = slices.DeleteFunc(m.pools, func(other *Pool) bool { return other == p })
	all := p.empty()
	out := p.lent.Clear()
	m.stats.InUse -= total(out) - p.uncut
	m.stats.Pooled -= p.slabs.freeBytes()
	out = slices.DeleteFunc(out, func(b *Buffer) bool { return b.of != nil })
	for _, s := range p.slabs.all {
		out = append(out, s.root)
	}
	p.slabs, p.uncut = slabs{}, 0
	m.mu.Unlock()
	m.discard(append(all, out...))
}

// empty takes out all free buffers. The caller must hold memory.mu.
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
