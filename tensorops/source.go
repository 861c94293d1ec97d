package tensorops

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
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

// nothing is a Source without memory behind it. Its addresses are all different, as a device's
// are: what is launched may depend on whether two tensors share memory.
type nothing struct{ next uint64 }

func (n *nothing) Alloc(b *Buffer) error {
	b.Addr = n.next
	n.next += (uint64(b.bytes) + minClassBytes - 1) / minClassBytes * minClassBytes
	return nil
}

func (*nothing) Free(*Buffer) {}
