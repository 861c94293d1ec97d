package collective

import (
	"math/bits"
	"sync"
)

// buffers keeps memory for messages that come before they can be used.
type buffers struct {
	mu   sync.Mutex
	free [bits.UintSize][][]byte // by the power of two of their length
	kept int                     // bytes
}

// limitKeptBytes bounds the memory that a group keeps for use again.
const limitKeptBytes = 64 << 20

func class(n int) int { return bits.Len(uint(max(n, 64) - 1)) }

// get returns n bytes with any content.
func (s *buffers) get(n int) []byte {
	k := class(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.free[k]; len(list) > 0 { // the last one that came back: it may still be in a cache
		b := list[len(list)-1]
		s.free[k] = list[:len(list)-1]
		s.kept -= len(b)
		return b[:n]
	}
	return make([]byte, 1<<k)[:n]
}

func (s *buffers) put(b []byte) {
	if b == nil {
		return
	}
	b = b[:cap(b)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept+len(b) <= limitKeptBytes {
		k := class(len(b))
		s.free[k] = append(s.free[k], b)
		s.kept += len(b)
	}
}
