package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Device is the driver's description of one GPU.
type Device struct {
	Ordinal      int // its number in the driver
	Name         string
	Major, Minor int   // compute capability
	Processors   int   // streaming multiprocessors
	Bytes        int64 // of memory
	UUID         [16]byte
	Peers        []int // devices whose memory it can access, as Describe tells

	handle uintptr
}

// Attributes of a device, of which CUDA has more.
const (
	attributeProcessors = 16
	attributeMajor      = 75
	attributeMinor      = 76
)

// Devices counts the GPUs.
func (d *Driver) Devices() (int, error) {
	var n int32
	err := d.do(cuDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	var e *Error
	if errors.As(err, &e) && e.Code == codeNoDevice {
		return 0, nil
	}
	return int(n), err
}

// Device looks at a GPU.
func (d *Driver) Device(ordinal int) (*Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fmt.Errorf("%w: device %d was requested, but the driver sees %d devices, counted from 0", ErrUnavailable, ordinal, n)
	}
	var handle int32
	if err := d.do(cuDeviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(ordinal)); err != nil {
		return nil, err
	}
	g := &Device{Ordinal: ordinal, handle: uintptr(handle)}
	var name [256]byte
	if err := d.do(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), g.handle); err != nil {
		return nil, err
	}
	g.Name = text(&name[0])
	var bytes uintptr
	if err := d.do(cuDeviceTotalMem, uintptr(unsafe.Pointer(&bytes)), g.handle); err != nil {
		return nil, err
	}
	g.Bytes = int64(bytes)
	if err := d.do(cuDeviceGetUUID, uintptr(unsafe.Pointer(&g.UUID)), g.handle); err != nil {
		return nil, err
	}
	for attribute, to := range map[uintptr]*int{attributeProcessors: &g.Processors, attributeMajor: &g.Major, attributeMinor: &g.Minor} {
		var value int32
		if err := d.do(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&value)), attribute, g.handle); err != nil {
			return nil, err
		}
		*to = int(value)
	}
	return g, nil
}

// Context is a device's state within the process.
type Context uintptr

// Retain makes the device's primary context, or counts one more user of it.
func (d *Driver) Retain(g *Device) (Context, error) {
	var c Context
	err := d.do(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), g.handle)
	return c, err
}

// Release gives the primary context back; with its last user it ends.
func (d *Driver) Release(g *Device) error { return d.do(cuDevicePrimaryCtxRelease, g.handle) }

// Use makes a context the calling thread's; 0 takes it away.
func (d *Driver) Use(c Context) error { return d.do(cuCtxSetCurrent, uintptr(c)) }
