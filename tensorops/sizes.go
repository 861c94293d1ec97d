package tensorops

// SizeClasses is how many size classes there are.
const SizeClasses = classes

// SizeClass returns the class of a size and the bytes of that class. It is for the
// arenas of devices with memory of their own, so that all devices take the same for a
// tensor.
func SizeClass(bytes int) (c, rounded int) { return class(bytes) }

// NewDeviceBuffer makes a buffer of memory that the host cannot address.
func NewDeviceBuffer(addr uint64, bytes int, home Arena) *Buffer {
	return &Buffer{Addr: addr, Home: home, bytes: bytes}
}

// Bytes is the buffer's size: that of its class.
func (b *Buffer) Bytes() int { return b.bytes }
