package driver

import "unsafe"

// Stream is a queue of a device's: what is put into it runs in order.
type Stream uintptr

// Event is a mark in a stream.
type Event uintptr

// NewStream makes a stream that waits for no other.
func (d *Driver) NewStream() (Stream, error) {
	const nonBlocking = 1
	var s Stream
	err := d.do(cuStreamCreate, uintptr(unsafe.Pointer(&s)), nonBlocking)
	return s, err
}

// EndStream ends a stream.
func (d *Driver) EndStream(s Stream) error { return d.do(cuStreamDestroy, uintptr(s)) }

// WaitStream waits until all that was put into a stream has run.
func (d *Driver) WaitStream(s Stream) error { return d.do(cuStreamSynchronize, uintptr(s)) }

// NewEvent makes an event. Who waits for it sleeps.
func (d *Driver) NewEvent() (Event, error) {
	const blockingSync, disableTiming = 1, 2
	var e Event
	err := d.do(cuEventCreate, uintptr(unsafe.Pointer(&e)), blockingSync|disableTiming)
	return e, err
}

// EndEvent ends an event.
func (d *Driver) EndEvent(e Event) error { return d.do(cuEventDestroy, uintptr(e)) }

// Record puts the event into a stream.
func (d *Driver) Record(e Event, s Stream) error { return d.do(cuEventRecord, uintptr(e), uintptr(s)) }

// Wait waits until a stream has reached the place where the event was last recorded. It returns the
// errors of earlier kernels.
func (d *Driver) Wait(e Event) error { return d.do(cuEventSynchronize, uintptr(e)) }

// WaitFor makes later work of a stream wait until another stream has reached the place where the
// event was last recorded. The event may be recorded again at once.
func (d *Driver) WaitFor(s Stream, e Event) error {
	return d.do(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}
