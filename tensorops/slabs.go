package tensorops

import (
	"errors"
	"slices"
)

// slabs is how a pool keeps large buffers after Join. They are cut from slabs, and joined with
// their free neighbors when they return, so that memory freed in one size serves another. A
// training step has few sizes, for which classes waste nothing; but if gradients reuse the memory
// of activations, or if the microbatches differ in length, the sizes differ.
//
// The pool's memory.mu guards it.
type slabs struct {
	on    bool
	asked int // bytes taken from the source so far
	all   []*slab
	free  []*piece // unordered
}

// slab is memory that was taken from the source in one call.
type slab struct {
	root   *Buffer // the buffer from the source
	number int     // in the order of allocation
}

// piece is a part of a slab, free or in use. Each use has a new buffer: operations that are
// recorded but not yet run may look at a freed buffer, while the piece may already have another
// size.
type piece struct {
	of          *slab
	at, bytes   int
	left, right *piece // its neighbors
	place       int    // index among the free ones
	free        bool
	since       uint64 // last time at which some of it was freed, by the memory's clock
}

const (
	// leastPiece is the smallest size that is cut from slabs; pieceGrain is the unit of their
	// sizes.
	leastPiece  = 64 << 10
	pieceGrain  = 4 << 10
	leastSlab   = 1 << 20
	largestSlab = 64 << 20
)

// Join makes the pool cut large buffers from slabs from now on. At most a sixteenth of the pool's
// memory is unused remainders of slabs.
func (p *Pool) Join() {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.slabs.on = true
}

// takePiece is Take for a large buffer after Join.
func (p *Pool) takePiece(bytes int) (b *Buffer, err error) {
	size := (bytes + pieceGrain - 1) / pieceGrain * pieceGrain
	for _, slab := range []int{p.slabBytes(size), size} { // there may be memory only for this buffer
		if b, err = p.cutFree(size); b != nil || err != nil {
			return b, err
		}
		var root *Buffer
		if root, err = p.grow(slab, size); err == nil {
			return p.cutSlab(root, size)
		}
		if !errors.Is(err, ErrOutOfMemory) {
			break
		}
	}
	return nil, err
}

// cutSlab cuts a buffer that already counts as in use from new memory of the source.
func (p *Pool) cutSlab(root *Buffer, size int) (*Buffer, error) {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.closed { // closed meanwhile, and the slab was freed
		return nil, p.errClosed()
	}
	p.uncut -= int64(root.bytes - size)
	m.stats.Pooled += int64(root.bytes - size)
	m.stats.Taken = max(m.stats.Taken, m.stats.InUse+m.stats.Pooled)
	p.slabs.asked++
	all := &piece{of: &slab{root: root, number: p.slabs.asked}, bytes: root.bytes}
	p.slabs.all = append(p.slabs.all, all.of)
	p.lent.Remove(root)
	return p.lend(all, size), nil
}

// slabBytes returns how much to take from the source for a buffer that fits no free piece.
func (p *Pool) slabBytes(size int) int {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.memory.stats.Limit > 0 { // the remainder would count against the limit
		return size
	}
	slab := max(size, int(min(max(p.held/perDoubling, leastSlab), largestSlab))/pieceGrain*pieceGrain)
	if p.bound > 0 && p.held+int64(slab) > p.bound {
		return size
	}
	return slab
}

// cutFree takes the smallest free piece that is large enough and, of equal ones, the first in the
// order of slabs and positions, so that equal steps use equal positions; nil if there is none.
func (p *Pool) cutFree(size int) (*Buffer, error) {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := p.use(size); err != nil {
		return nil, err
	}
	var best *piece
	for _, b := range p.slabs.free {
		if b.bytes >= size && (best == nil || b.bytes < best.bytes || b.bytes == best.bytes && b.before(best)) {
			best = b
		}
	}
	if best == nil {
		return nil, nil
	}
	p.slabs.remove(best)
	m.stats.Pooled -= int64(size)
	return p.lend(best, size), nil
}

// lend makes a buffer from the start of a piece that is not among the free ones; the rest of the
// piece becomes free.
func (p *Pool) lend(b *piece, size int) *Buffer {
	if b.bytes > size {
		rest := &piece{of: b.of, at: b.at + size, bytes: b.bytes - size, since: b.since, left: b, right: b.right}
		if b.right != nil {
			b.right.left = rest
		}
		b.bytes, b.right = size, rest
		p.slabs.add(rest)
	}
	out, root := &Buffer{Home: p, bytes: size, of: b}, b.of.root
	if root.Mem != nil {
		out.Mem = root.Mem[b.at : b.at+size : b.at+size]
	}
	if root.Addr != 0 {
		out.Addr = root.Addr + uint64(b.at)
	}
	p.lent.Add(out)
	return out
}

func (b *piece) before(other *piece) bool {
	if b.of != other.of {
		return b.of.number < other.of.number
	}
	return b.at < other.at
}

// back takes a piece back and joins it with its free neighbors.
func (s *slabs) back(b *piece, now uint64) {
	b.since = now
	if l := b.left; l != nil && l.free {
		s.remove(l)
		l.swallow(b)
		b = l
	}
	if r := b.right; r != nil && r.free {
		s.remove(r)
		b.swallow(r)
	}
	s.add(b)
}

// swallow extends a piece by the next one.
func (b *piece) swallow(r *piece) {
	b.bytes += r.bytes
	b.since = max(b.since, r.since)
	if b.right = r.right; b.right != nil {
		b.right.left = b
	}
}

func (s *slabs) add(b *piece) {
	b.place, b.free = len(s.free), true
	s.free = append(s.free, b)
}

func (s *slabs) remove(b *piece) {
	last := len(s.free) - 1
	moved := s.free[last]
	s.free[b.place], moved.place = moved, b.place
	s.free[last] = nil
	s.free = s.free[:last]
	b.free = false
}

// whole returns the slabs of which nothing is in use.
func (s *slabs) whole() (all []*piece) {
	for _, b := range s.free {
		if b.bytes == b.of.root.bytes {
			all = append(all, b)
		}
	}
	return all
}

// drop takes out a whole slab, and returns the buffer to free at the source.
func (s *slabs) drop(b *piece) *Buffer {
	s.remove(b)
	s.all = slices.DeleteFunc(s.all, func(other *slab) bool { return other == b.of })
	return b.of.root
}

// freeBytes returns the number of free bytes.
func (s *slabs) freeBytes() (n int64) {
	for _, b := range s.free {
		n += int64(b.bytes)
	}
	return n
}
