package cuda

import (
	"encoding/binary"
	"errors"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// flight is a piece of work on the device: a list, or the part of one up to an
// operation whose outcome the rest depends on. The owner's thread launches it, the
// stream's own goroutine sees it land. It is used again and again.
type flight struct {
	driver  *driver.Driver
	stream  driver.Stream
	event   driver.Event
	staging staging
	fault   []byte // page-locked: a copy of the stream's fault word, and of one id

	sub        submission
	last       bool // the list ends with it
	onItsOwn   bool // nothing depends on its outcome: the next list may be launched behind it
	recorded   bool // the event is in the stream
	err        error
	fetches    []landing
	checked    *tensorops.Op // its last operation, if that may have met a bad id
	collective *tensorops.Op // to be started when it has landed
	cause      *tensorops.Op // of the collective, as the list has it
}

// landing is a fetched piece on its way from staging to the host's memory.
type landing struct{ to, from []byte }

// Places in the fault memory.
const (
	faultWord  = 0
	faultID    = 8
	faultBytes = 16
)

func newFlight(d *driver.Driver, s driver.Stream) (f *flight, err error) {
	f = &flight{driver: d, stream: s, staging: staging{driver: d}}
	if f.event, err = d.NewEvent(); err != nil {
		return nil, err
	}
	if f.fault, err = d.AllocHost(faultBytes); err != nil {
		_ = d.EndEvent(f.event)
		return nil, err
	}
	return f, nil
}

// close gives back what the flight has of the driver's.
func (f *flight) close() {
	// The context ends soon, and takes along what is not given back.
	_ = f.driver.EndEvent(f.event)
	_ = f.driver.FreeHost(f.fault)
	f.staging.close()
}

// reset makes the flight ready for the next piece of work.
func (f *flight) reset() {
	f.staging.reset()
	clear(f.fetches)
	f.fetches = f.fetches[:0]
	f.sub = submission{}
	f.last, f.onItsOwn, f.recorded = false, false, false
	f.err, f.checked, f.collective, f.cause = nil, nil, nil, nil
}

// wait waits until the device has done it all.
func (f *flight) wait() error {
	if f.recorded {
		err := f.driver.Wait(f.event)
		if err == nil {
			return nil
		}
		// The device may still be at work on this flight's memory.
		return errors.Join(err, f.driver.WaitStream(f.stream))
	}
	return f.driver.WaitStream(f.stream)
}

// land copies what was fetched to where it belongs.
func (f *flight) land() {
	for _, l := range f.fetches {
		copy(l.to, l.from)
	}
}

// check reports a bad id that the last operation has met.
func (f *flight) check() error {
	if f.checked == nil {
		return nil
	}
	word := binary.NativeEndian.Uint64(f.fault[faultWord:])
	if word == 0 {
		return nil
	}
	l, _ := lookupOf(f.checked)
	row := int(uint32(word))
	if row >= l.ids.Len() {
		return tensorops.ErrToken // the row itself makes no sense: the kernel is wrong
	}
	// Nothing is launched behind such a flight, so the ids are still there.
	id := f.fault[faultID : faultID+4]
	if err := f.driver.CopyOut(id, driver.Address(address(l.ids)+4*uint64(row)), f.stream); err != nil {
		return errors.Join(tensorops.ErrToken, err)
	}
	if err := f.driver.WaitStream(f.stream); err != nil {
		return errors.Join(tensorops.ErrToken, err)
	}
	return l.badID(row, int32(binary.NativeEndian.Uint32(id)))
}
