package tensorops

import "math/bits"

// Sizes are rounded up to one of sixteen classes in each power of two, so at most a sixteenth of a
// large buffer is unused.
const (
	minClassBytes = 256
	perDoubling   = 16
	classes       = perDoubling * 50
)

// class returns the class of a size and the bytes of that class.
func class(bytes int) (int, int) {
	if bytes <= minClassBytes {
		return 0, minClassBytes
	}
	exp := bits.Len(uint(bytes-1)) - 1 // 2^exp < bytes <= 2^(exp+1)
	part := 1 << exp / perDoubling
	step := (bytes - 1<<exp + part - 1) / part
	return perDoubling*(exp-8) + step, 1<<exp + step*part
}

// SizeClass returns the class of a size and the bytes of that class.
func SizeClass(bytes int) (c, rounded int) { return class(bytes) }

// NewDeviceBuffer makes a buffer of memory that the host cannot address.
func NewDeviceBuffer(addr uint64, bytes int, home Arena) *Buffer {
	return &Buffer{Addr: addr, Home: home, bytes: bytes}
}

// Bytes returns the buffer's size: that of its class.
func (b *Buffer) Bytes() int { return b.bytes }

// Lent holds the buffers that an arena has handed out, so that it can free them when it is closed.
type Lent struct{ all []*Buffer }

// Add records that a buffer was handed out.
func (l *Lent) Add(b *Buffer) {
	b.place = len(l.all)
	l.all = append(l.all, b)
}

// Remove records that a buffer was returned.
func (l *Lent) Remove(b *Buffer) {
	last := len(l.all) - 1
	moved := l.all[last]
	l.all[b.place], moved.place = moved, b.place
	l.all[last] = nil
	l.all = l.all[:last]
}

// Clear empties the list and returns its contents.
func (l *Lent) Clear() []*Buffer {
	all := l.all
	l.all = nil
	return all
}

// bytes returns the size of all buffers handed out.
func (l *Lent) bytes() int64 { return total(l.all) }
