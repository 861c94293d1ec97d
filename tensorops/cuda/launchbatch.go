package cuda

import (
	"encoding/binary"
	"errors"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// launchBatch is a piece of work on the device: a list, or the part of one up to an
// operation whose outcome the rest depends on. The owner's thread launches it, the
// stream's own goroutine sees it complete. It is used again and again.
type launchBatch struct {
	driver  *driver.Driver
	stream  driver.Stream
	copies  driver.Stream   // for those beside the kernels
	events  [2]driver.Event // one for each of the two streams
	staging staging
	fault   []byte // page-locked: copies of the stream's fault word, of one id, and of the word of checkedroutes.go

	sub        tensorops.Submission
	last       bool   // the list ends with it
	onItsOwn   bool   // nothing depends on its outcome: the next list may be launched behind it
	aside      bool   // copies to the host are in the other stream
	recorded   bool   // the events are in the streams
	hold       uint64 // by what the arena of scratch memory knows it
	err        error
	fetches    []delivery
	arriving   []*tensorops.Buffer // where large copies to the device arrive
	kept       []tensorops.Tensor  // of the host's, which copies to the device read
	routed     bool                // some of its operations read places, experts or offsets
	checked    *tensorops.Op       // its last operation, if that may have met a bad id
	collective *tensorops.Op       // to be started when it is complete
	cause      *tensorops.Op       // of the collective, as the list has it
}

// delivery is a piece of what was fetched, on its way from staging to the host's memory.
type delivery struct{ to, from []byte }

// Places in the fault memory.
const (
	faultWord  = 0
	faultID    = 8
	faultBytes = 16 // of these two
	faultRoute = faultBytes
)

func newLaunchBatch(d *driver.Driver, s, copies driver.Stream) (f *launchBatch, err error) {
	f = &launchBatch{driver: d, stream: s, copies: copies, staging: staging{driver: d}}
	for i := range f.events {
		if f.events[i], err = d.NewEvent(); err != nil {
			f.close()
			return nil, err
		}
	}
	if f.fault, err = d.AllocHost(faultBytes + routeBytes); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close gives back what the batch has of the driver's.
func (f *launchBatch) close() {
	// The context ends soon, and takes along what is not given back.
	for _, e := range f.events {
		if e != 0 {
			_ = f.driver.EndEvent(e)
		}
	}
	if f.fault != nil {
		_ = f.driver.FreeHost(f.fault)
	}
	f.staging.close()
}

// reset makes the batch ready for the next piece of work.
func (f *launchBatch) reset() {
	f.staging.reset()
	clear(f.fetches)
	f.fetches = f.fetches[:0]
	for i, b := range f.arriving {
		b.Home.Put(b)
		f.arriving[i] = nil
	}
	f.arriving = f.arriving[:0]
	for i, t := range f.kept {
		t.Release()
		f.kept[i] = tensorops.Tensor{}
	}
	f.kept = f.kept[:0]
	f.sub = tensorops.Submission{}
	f.last, f.onItsOwn, f.aside, f.recorded, f.routed = false, false, false, false, false
	f.err, f.checked, f.collective, f.cause = nil, nil, nil, nil
}

// keep releases a tensor of the host's when the batch is complete.
func (f *launchBatch) keep(t tensorops.Tensor) { f.kept = append(f.kept, t) }

// arrivingBytes is the memory that copies to the device arrive in.
func (f *launchBatch) arrivingBytes() (n int) {
	for _, b := range f.arriving {
		n += b.Bytes()
	}
	return n
}

// record puts the events behind all that was launched.
func (f *launchBatch) record() error {
	if err := f.driver.Record(f.events[0], f.stream); err != nil {
		return err
	}
	if f.aside {
		if err := f.driver.Record(f.events[1], f.copies); err != nil {
			return err
		}
	}
	f.recorded = true
	return nil
}

// wait waits until the device has done it all.
func (f *launchBatch) wait() error {
	if f.recorded {
		err := f.driver.Wait(f.events[0])
		if err == nil && f.aside {
			err = f.driver.Wait(f.events[1])
		}
		if err == nil {
			return nil
		}
		// The device may still be at work on this batch's memory. If that cannot be waited
		// for either, it is for the reason that err gives.
		_ = f.waitStreams()
		return err
	}
	return f.waitStreams()
}

func (f *launchBatch) waitStreams() error {
	return errors.Join(f.driver.WaitStream(f.stream), f.driver.WaitStream(f.copies))
}

// deliver copies what was fetched to where it belongs.
func (f *launchBatch) deliver() {
	for _, l := range f.fetches {
		copy(l.to, l.from)
	}
}

// check reports a bad id that the last operation has met.
func (f *launchBatch) check() error {
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
	// Nothing is launched behind such a batch, so the ids are still there.
	id := f.fault[faultID : faultID+4]
	if err := f.driver.CopyOut(id, driver.Address(address(l.ids)+4*uint64(row)), f.stream); err != nil {
		return errors.Join(tensorops.ErrToken, err)
	}
	if err := f.driver.WaitStream(f.stream); err != nil {
		return errors.Join(tensorops.ErrToken, err)
	}
	return l.badID(row, int32(binary.NativeEndian.Uint32(id)))
}
