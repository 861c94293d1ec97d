package cuda

import (
	"errors"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// copies are a stream's large copies from and to the host, and from other devices. They have a stream of the
// driver's to themselves, so that kernels go on beside them.
//
// What comes in arrives in memory that no kernel knows, and the kernels' stream takes it to
// its place: that may still be in use when the copy begins. What goes out is read where it
// lies; an operation that touches it before it is out waits.
type copies struct {
	driver   *driver.Driver
	kernels  driver.Stream
	stream   driver.Stream
	event    driver.Event // where one of the two waits for the other
	arriving *tensorops.Pool
	leaving  []extent // memory that copies out may be reading
}

// begin makes what the copies have of the driver's.
func (c *copies) begin() (err error) {
	if c.stream, err = c.driver.NewStream(); err != nil {
		return err
	}
	c.event, err = c.driver.NewEvent()
	return err
}

// end gives it back.
func (c *copies) end() {
	// What cannot be given back here ends with the context.
	if c.stream != 0 {
		_ = c.driver.EndStream(c.stream)
	}
	if c.event != 0 {
		_ = c.driver.EndEvent(c.event)
	}
	c.arriving.Close()
}

// follow makes what is put into one stream from now on wait for what is in another.
func (c *copies) follow(later, earlier driver.Stream) error {
	if err := c.driver.Record(c.event, earlier); err != nil {
		return err
	}
	return c.driver.WaitFor(later, c.event)
}

// in copies a piece of page-locked memory to the device.
func (c *copies) in(f *launchBatch, to driver.Address, piece []byte) error {
	return c.arrive(f, to, len(piece), func(at driver.Address, on driver.Stream) error { return c.driver.CopyIn(at, piece, on) })
}

// arrive lets bytes come to a place on the device: begin begins the copy to an address, on a stream.
func (c *copies) arrive(f *launchBatch, to driver.Address, bytes int, begin func(driver.Address, driver.Stream) error) error {
	if bytes < minAside || f.arrivingBytes()+bytes > limitArrivingBytes {
		return begin(to, c.kernels)
	}
	b, err := c.arriving.Take(bytes)
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return begin(to, c.kernels) // it can wait for its place
	}
	if err != nil {
		return err
	}
	f.arriving = append(f.arriving, b)
	if err := begin(driver.Address(b.Addr), c.stream); err != nil {
		return err
	}
	if err := c.follow(c.kernels, c.stream); err != nil {
		return err
	}
	return c.driver.CopyWithin(to, driver.Address(b.Addr), bytes, c.kernels)
}

// out copies device memory to a piece of page-locked memory.
func (c *copies) out(f *launchBatch, piece []byte, from driver.Address) error {
	if len(piece) < minAside {
		return c.driver.CopyOut(piece, from, c.kernels)
	}
	if err := c.follow(c.stream, c.kernels); err != nil {
		return err
	}
	f.aside = true
	c.leaving = append(c.leaving, extent{uint64(from), uint64(from) + uint64(len(piece))})
	return c.driver.CopyOut(piece, from, c.stream)
}

// settle lets the kernels' stream wait for copies out, if one of the operations that come
// next touches what they read, or if they are too many to look through.
func (c *copies) settle(ops []tensorops.Op) error {
	if len(c.leaving) == 0 || len(c.leaving) < limitLeaving && !c.touched(ops) {
		return nil
	}
	c.leaving = c.leaving[:0]
	return c.follow(c.kernels, c.stream)
}

func (c *copies) touched(ops []tensorops.Op) bool {
	for i := range ops {
		for _, t := range ops[i].T {
			e := extentOf(t)
			if slices.ContainsFunc(c.leaving, e.meets) {
				return true
			}
		}
	}
	return false
}
