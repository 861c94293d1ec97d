package cuda

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// staging is page-locked memory that one batch's uploads and fetches pass through:
// the device copies from and to it on its own. It grows as it is asked for, to
// limitStagingBytes.
type staging struct {
	driver *driver.Driver
	blocks [][]byte
	block  int // in use; those before are used up
	used   int // of it
	bytes  int // of all blocks
}

// take returns at most n bytes until the batch is complete; none when all of the
// limit is used up.
func (s *staging) take(bytes int) ([]byte, error) {
	for s.block < len(s.blocks) && s.used == len(s.blocks[s.block]) {
		s.block, s.used = s.block+1, 0
	}
	if s.block == len(s.blocks) {
		size := minStagingBytes
		for size < bytes {
			size *= 2
		}
		if size = min(size, limitStagingBytes-s.bytes); size == 0 {
			return nil, nil
		}
		b, err := s.driver.AllocHost(size)
		if err != nil {
			return nil, err
		}
		s.blocks = append(s.blocks, b)
		s.bytes += size
	}
	b := s.blocks[s.block][s.used:]
	b = b[:min(bytes, len(b))]
	// Where a piece begins matters to no one but the copies, which like whole lines.
	const line = 64
	s.used = min((s.used+len(b)+line-1)/line*line, len(s.blocks[s.block]))
	return b, nil
}

// errNoRoom: the batch has no page-locked memory left for what has to be in one piece. It
// has to complete first.
var errNoRoom = errors.New("no page-locked memory left in this batch")

// whole returns n bytes in one piece until the batch is complete, at most
// minStagingBytes, which every block has.
func (s *staging) whole(bytes int) ([]byte, error) {
	if bytes > minStagingBytes {
		return nil, fmt.Errorf("a copy needs %d bytes of page-locked memory in one piece; the limit is %d", bytes, minStagingBytes)
	}
	if s.block < len(s.blocks) && len(s.blocks[s.block])-s.used < bytes {
		s.block, s.used = s.block+1, 0
	}
	b, err := s.take(bytes)
	if err == nil && len(b) < bytes {
		err = errNoRoom
	}
	return b, err
}

// reset makes all of it free again.
func (s *staging) reset() { s.block, s.used = 0, 0 }

// close gives it back.
func (s *staging) close() {
	for _, b := range s.blocks {
		_ = s.driver.FreeHost(b) // the context ends soon, and the memory with it
	}
	s.blocks = nil
}
