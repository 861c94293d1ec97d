package driver

import "unsafe"

// Address is a place in a device's memory.
type Address uint64

// MemoryInfo returns the device's free and total memory, in bytes, including the use of other
// processes.
func (d *Driver) MemoryInfo() (free, total int64, err error) {
	var f, t uintptr
	err = d.do(cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}

// Alloc takes device memory; its content is undefined.
func (d *Driver) Alloc(bytes int) (Address, error) {
	var a Address
	err := d.do(cuMemAlloc, uintptr(unsafe.Pointer(&a)), uintptr(bytes))
	return a, err
}

// Free gives it back, when all that was launched before has run.
func (d *Driver) Free(a Address) error { return d.do(cuMemFree, uintptr(a)) }

// AllocHost takes page-locked memory of the host's, which a device reads and writes on
// its own.
func (d *Driver) AllocHost(bytes int) ([]byte, error) {
	if d.library == nil {
		return make([]byte, bytes), nil
	}
	var p *byte // the driver writes it: the memory is not Go's
	const portable = 1
	if err := d.do(cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable); err != nil {
		return nil, err
	}
	return unsafe.Slice(p, bytes), nil
}

// FreeHost gives it back.
func (d *Driver) FreeHost(b []byte) error { return d.do(cuMemFreeHost, pointer(b)) }

// CopyIn copies page-locked memory to the device, in the stream's order.
func (d *Driver) CopyIn(to Address, from []byte, s Stream) error {
	return d.do(cuMemcpyHtoDAsync, uintptr(to), pointer(from), uintptr(len(from)), uintptr(s))
}

// CopyOut copies device memory to page-locked memory, in the stream's order.
func (d *Driver) CopyOut(to []byte, from Address, s Stream) error {
	return d.do(cuMemcpyDtoHAsync, pointer(to), uintptr(from), uintptr(len(to)), uintptr(s))
}

// CopyWithin copies device memory to other device memory, in the stream's order.
func (d *Driver) CopyWithin(to, from Address, bytes int, s Stream) error {
	return d.do(cuMemcpyDtoDAsync, uintptr(to), uintptr(from), uintptr(bytes), uintptr(s))
}

// Clear sets words of four bytes to 0, in the stream's order.
func (d *Driver) Clear(at Address, words int, s Stream) error {
	return d.do(cuMemsetD32Async, uintptr(at), 0, uintptr(words), uintptr(s))
}

// pointer is the address of page-locked memory, which never moves.
func pointer(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
