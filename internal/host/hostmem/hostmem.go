// Package hostmem gets large pieces of memory outside of the garbage-collected
// heap: aligned to cache lines, on huge pages where the system has them, and
// invisible to the collector, which then has next to nothing to do however large
// a model is. It also maps files into memory. It knows no tensors.
package hostmem

import "unsafe"

// Align is the alignment of every piece, in bytes: a cache line, and the widest
// vector.
const Align = 64

// minMapped is the size from which memory is mapped rather than allocated:
// below it, a mapping of its own costs more than the collector.
const minMapped = 1 << 18

// Piece is memory. Its pages come back to the system on Free, or some time after
// the Piece is unreachable; Bytes must not be used after either.
type Piece struct {
	Bytes []byte
	free  func() error // nil: on the heap
}

// New returns a piece of the given size. Its content is undefined. It fails
// where the system has no more memory to give.
func New(bytes int) (*Piece, error) {
	if bytes >= minMapped {
		if p, err := mapped(bytes); p != nil || err != nil {
			return p, err
		}
	}
	raw := make([]byte, bytes+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (Align - 1)
	return &Piece{Bytes: raw[skip:][:bytes:bytes]}, nil
}

// populateBytes is how much memory Populate asks for between two looks at whether it is to end.
const populateBytes = 64 << 20

// Populate makes the system give the pages of the memory now instead of when each is first used, as far as it can. The content stays. It
// ends early if ends, which it asks from time to time, says so.
func (p *Piece) Populate(ends func() bool) {
	if p.free == nil {
		return
	}
	for at := 0; at < len(p.Bytes) && !ends(); at += populateBytes {
		populate(p.Bytes[at:min(at+populateBytes, len(p.Bytes))])
	}
}

// Free gives the memory back now.
func (p *Piece) Free() error {
	free := p.free
	p.Bytes, p.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}
