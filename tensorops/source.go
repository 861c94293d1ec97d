package tensorops

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// host is a Source of host memory. Large buffers are outside the garbage-collected heap; see
// package hostmem.
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
	_ = b.piece.Free() // if the system does not take it back, nothing can be done
}

// nothing is a Source without memory. Its addresses are all different, like a device's: launches
// may depend on whether two tensors share memory.
type nothing struct{ next uint64 }

func (n *nothing) Alloc(b *Buffer) error {
	b.Addr = n.next
	n.next += (uint64(b.bytes) + minClassBytes - 1) / minClassBytes * minClassBytes
	return nil
}

func (*nothing) Free(*Buffer) {}
