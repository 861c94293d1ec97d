package tensorops

import (
	"errors"
	"slices"
)

// slabs is how a pool keeps large buffers after Join: cut from slabs, and joined with their free neighbours when
// they come back, so that what was free in one size serves another. Sizes of a training step are few, and classes
// waste nothing on them; but where gradients take the memory that activations leave, the sizes differ.
//
// It is guarded by the pool's memory.mu.
type slabs struct {
	on    bool
	asked int // of the source so far
	all   []*slab
	free  []*piece // in no order
}

// slab is memory that was asked of the source at once.
type slab struct {
	root   *Buffer // as the source gave it
	number int     // in the order of asking
}

// piece is a part of a slab, free or in use. The buffer by which it is in use is made anew each time: operations
// that are recorded and not yet carried out look at a buffer that was freed, and the piece may be another by then.
type piece struct {
	of          *slab
	at, bytes   int
	left, right *piece // its neighbours
	place       int    // among the free ones
	free        bool
	since       uint64 // when some of it came home last, by the memory's clock
}

const (
	// leastPiece is the size from which buffers are cut from slabs, pieceGrain what their sizes are multiples of.
	leastPiece  = 64 << 10
	pieceGrain  = 4 << 10
	leastSlab   = 1 << 20
	largestSlab = 64 << 20
)

// Join makes the pool cut large buffers from slabs from now on. What a step leaves of a slab is at most a sixteenth of
// what the pool has.
func (p *Pool) Join() {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.slabs.on = true
}

// takePiece is Take of a large buffer after Join.
func (p *Pool) takePiece(bytes int) (b *Buffer, err error) {
	size := (bytes + pieceGrain - 1) / pieceGrain * pieceGrain
	for _, slab := range []int{p.slabBytes(size), size} { // there may be enough for this one alone
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

// cutSlab cuts a buffer that counts as in use from memory that the source gave.
func (p *Pool) cutSlab(root *Buffer, size int) (*Buffer, error) {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.closed { // meanwhile, and has given the slab back
		return nil, p.errClosed()
	}
	m.stats.Pooled += int64(root.bytes - size)
	m.stats.Taken = max(m.stats.Taken, m.stats.InUse+m.stats.Pooled)
	p.slabs.asked++
	all := &piece{of: &slab{root: root, number: p.slabs.asked}, bytes: root.bytes}
	p.slabs.all = append(p.slabs.all, all.of)
	p.lent.Remove(root)
	return p.lend(all, size), nil
}

// slabBytes is how much is asked of the source for a buffer of a size that no free piece has.
func (p *Pool) slabBytes(size int) int {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.memory.stats.Limit > 0 { // what is left over would count
		return size
	}
	slab := max(size, int(min(max(p.held/perDoubling, leastSlab), largestSlab))/pieceGrain*pieceGrain)
	if p.bound > 0 && p.held+int64(slab) > p.bound {
		return size
	}
	return slab
}

// cutFree takes the smallest free piece that is large enough, of these the first in the order of slabs and places, so
// that steps that do the same take the same places; nil if there is none.
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

// lend makes a buffer of the beginning of a piece that is not among the free ones; the rest of it is, behind it.
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

// back takes a piece back and joins it with its neighbours that are free.
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

// swallow makes a piece longer by the one behind it.
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

// whole are the slabs out of which nothing is in use.
func (s *slabs) whole() (all []*piece) {
	for _, b := range s.free {
		if b.bytes == b.of.root.bytes {
			all = append(all, b)
		}
	}
	return all
}

// drop takes a whole slab out, and returns what goes back to the source.
func (s *slabs) drop(b *piece) *Buffer {
	s.remove(b)
	s.all = slices.DeleteFunc(s.all, func(other *slab) bool { return other == b.of })
	return b.of.root
}

// freeBytes is how much is free.
func (s *slabs) freeBytes() (n int64) {
	for _, b := range s.free {
		n += int64(b.bytes)
	}
	return n
}
