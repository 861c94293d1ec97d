package tensorops

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/hostmem"
)

// host is the host's memory as a Source. Large buffers lie outside of the collector's
// heap: see package hostmem.
type host struct{}

func (host) Alloc(b *Buffer) error {
	p, err := hostmem.New(b.bytes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutOfMemory, err)
	}
	b.Mem, b.piece = p.Bytes, p
	return nil
}

func (host) Free(b *Buffer) {
	b.Mem = nil
	_ = b.piece.Free() // nothing can be done about what the system does not take back
}

// nothing is a Source without memory behind it.
type nothing struct{}

func (nothing) Alloc(*Buffer) error { return nil }
func (nothing) Free(*Buffer)        {}
