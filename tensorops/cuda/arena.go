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
	pieces pieces // for any thread
}

func newSource(d *driver.Driver, limit int64) *source {
	s := &source{driver: d}
	s.memory = tensorops.NewMemory(s, limit)
	return s
}

// Alloc asks the driver for memory; if it has none, once more without what idle arenas
// keep.
func (s *source) Alloc(b *tensorops.Buffer) error {
	at, err := s.driver.Alloc(b.Bytes())
	if driver.IsOutOfMemory(err) && s.memory.Trim() {
		at, err = s.driver.Alloc(b.Bytes())
	}
	if driver.IsOutOfMemory(err) {
		return fmt.Errorf("%w: %w", tensorops.ErrOutOfMemory, err)
	}
	b.Addr = uint64(at)
	return err
}

// Free gives memory back. What the driver does not take back is lost until the context ends.
func (s *source) Free(b *tensorops.Buffer) { _ = s.driver.Free(driver.Address(b.Addr)) }
