package driver

import "unsafe"

// Module is compiled code on a device, Function a kernel in it.
type (
	Module   uintptr
	Function uintptr
)

// Load brings what the compiler made onto the device.
func (d *Driver) Load(image []byte) (Module, error) {
	var m Module
	// PTX is a C string; an end that is there already does no harm.
	ended := append(image[:len(image):len(image)], 0)
	err := d.do(cuModuleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&ended[0])))
	return m, err
}

// Unload takes it away.
func (d *Driver) Unload(m Module) error { return d.do(cuModuleUnload, uintptr(m)) }

// Function finds a kernel.
func (d *Driver) Function(m Module, name string) (Function, error) {
	c := append([]byte(name), 0)
	var f Function
	err := d.do(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&c[0])))
	return f, err
}

// FreeShared is how much dynamic shared memory a block of any kernel may have. A kernel for more
// of it has to be allowed to.
const FreeShared = 48 << 10

// attributeDynamicShared is a function's: the most dynamic shared memory of its launches.
const attributeDynamicShared = 8

// AllowShared lets blocks of a kernel have that many bytes of dynamic shared memory.
func (d *Driver) AllowShared(f Function, bytes int) error {
	return d.do(cuFuncSetAttribute, uintptr(f), attributeDynamicShared, uintptr(bytes))
}

// LimitArgument bounds the bytes of a kernel's argument: what every GPU takes.
const LimitArgument = 4096

// Launch is what a launch is described with. It is used again and again, so that
// launching allocates nothing.
type Launch struct {
	argument [LimitArgument / 8]uint64
	bytes    uintptr
	extra    [5]uintptr // marks of the driver's among addresses; they are the Launch's own, which lies on the heap
}

// Marks in a launch's extra: what follows is the argument's address, or that of its size.
const (
	argumentPointer = 1
	argumentSize    = 2
)

// Argument is where a caller writes the argument, of the given number of bytes.
func (l *Launch) Argument(bytes int) []byte {
	l.bytes = uintptr(bytes)
	return unsafe.Slice((*byte)(unsafe.Pointer(&l.argument)), LimitArgument)[:bytes]
}

// Launch launches a kernel on a stream. shared is the dynamic shared memory of each block, in bytes.
// The argument is copied.
func (d *Driver) Launch(f Function, grid, block [3]int, shared int, s Stream, l *Launch) error {
	l.extra = [5]uintptr{argumentPointer, uintptr(unsafe.Pointer(&l.argument)), argumentSize, uintptr(unsafe.Pointer(&l.bytes))}
	return d.do(cuLaunchKernel, uintptr(f), uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(block[0]), uintptr(block[1]), uintptr(block[2]), uintptr(shared), uintptr(s), 0, uintptr(unsafe.Pointer(&l.extra)))
}
