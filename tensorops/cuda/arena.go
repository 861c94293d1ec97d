package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// source is the driver's memory. All but Lend is for the owner's thread.
type source struct {
	driver *driver.Driver
	device *Device // whose memory it is
	memory *tensorops.Memory
	graphs func() // lets go of scratch memory that graphs hold; nil: nobody makes any
	pieces pieces // for any thread
}

func newSource(d *driver.Driver, limit int64) *source {
	s := &source{driver: d}
	s.memory = tensorops.NewMemory(s, limit)
	return s
}

// Alloc asks the driver for memory. Where it has none, arenas give back what no list can use any
// more, until there is enough; and then, too, what only graphs use, which are made again. A block that
// is given back is whole, so that the driver can make one of any size of it: blocks are not split
// here, nor is memory mapped page by page (cuMemMap), for which other processes would need file
// descriptors instead of an IPC handle.
func (s *source) Alloc(b *tensorops.Buffer) error {
	at, err := s.trimmed(b)
	if driver.IsOutOfMemory(err) && s.graphs != nil {
		s.graphs()
		at, err = s.trimmed(b)
	}
	if driver.IsOutOfMemory(err) {
		return fmt.Errorf("%w: %w", tensorops.ErrOutOfMemory, err)
	}
	b.Addr = uint64(at)
	return err
}

// trimmed asks the driver until it has enough, or arenas give nothing more back.
func (s *source) trimmed(b *tensorops.Buffer) (driver.Address, error) {
	for {
		at, err := s.driver.Alloc(b.Bytes())
		if !driver.IsOutOfMemory(err) || s.memory.Trim(int64(b.Bytes())) == 0 {
			return at, err
		}
	}
}

// Free gives memory back. What the driver does not take back is lost until the context ends.
func (s *source) Free(b *tensorops.Buffer) { _ = s.driver.Free(driver.Address(b.Addr)) }
