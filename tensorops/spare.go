package tensorops

import (
	"sync"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// Spare is a Source of host memory that can keep what is freed, for buffers of the same size that are allocated later, also by another
// Memory. So the system need not give the memory again. It is safe for concurrent use.
type Spare struct {
	mu    sync.Mutex
	keeps bool
	free  map[int][]*hostmem.Piece // by size
}

// NewSpare makes a Spare that keeps what is freed.
func NewSpare() *Spare { return &Spare{keeps: true, free: make(map[int][]*hostmem.Piece)} }

// Stock allocates memory for a buffer of at least this size, and makes the system give it now: see hostmem.Piece.Populate.
func (s *Spare) Stock(bytes int, ends func() bool) error {
	_, size := class(bytes)
	p, err := hostmem.New(size)
	if err != nil {
		return err
	}
	p.Populate(ends)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[size] = append(s.free[size], p)
	return nil
}

// Add takes what another one keeps.
func (s *Spare) Add(other *Spare) {
	if other == nil {
		return
	}
	other.mu.Lock()
	all := other.free
	other.free = make(map[int][]*hostmem.Piece)
	other.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for size, some := range all {
		s.free[size] = append(s.free[size], some...)
	}
}

// Keep keeps what is freed from now on.
func (s *Spare) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeps = true
}

// Drop frees what was kept, and keeps nothing from now on.
func (s *Spare) Drop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	all := s.free
	s.keeps, s.free = false, make(map[int][]*hostmem.Piece)
	s.mu.Unlock()
	for _, some := range all {
		for _, p := range some {
			_ = p.Free() // if the system does not take it back, nothing can be done
		}
	}
}

// Bytes returns how much it keeps.
func (s *Spare) Bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for size, some := range s.free {
		n += int64(size) * int64(len(some))
	}
	return n
}

// Alloc implements Source.
func (s *Spare) Alloc(b *Buffer) error {
	if p := s.take(b.bytes); p != nil {
		b.Mem, b.piece = p.Bytes, p
		return nil
	}
	return host{}.Alloc(b)
}

func (s *Spare) take(size int) *hostmem.Piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	some := s.free[size]
	if len(some) == 0 {
		return nil
	}
	p := some[len(some)-1]
	s.free[size] = some[:len(some)-1]
	return p
}

// Free implements Source.
func (s *Spare) Free(b *Buffer) {
	s.mu.Lock()
	keeps := s.keeps
	if keeps {
		s.free[b.bytes] = append(s.free[b.bytes], b.piece)
	}
	s.mu.Unlock()
	if keeps {
		b.Mem, b.piece = nil, nil
		return
	}
	host{}.Free(b)
}
