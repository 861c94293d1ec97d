package tensorops

// Peer is a Device that copies directly from the memory of some other devices, without going
// through the host.
type Peer interface {
	Device
	// CopiesFrom reports whether List.PeerCopy of this device's streams can read tensors of another
	// device. It may query the devices; it is called before the first PeerCopy is recorded.
	CopiesFrom(Device) bool
}

// PageLocker is a Device that provides host memory which it, and other devices of its kind, read
// and write directly. Uploads from and fetches to this memory need no intermediate copy.
type PageLocker interface {
	Device
	// NewHostArena makes an arena of such memory. Close it before the device.
	NewHostArena(name string) Arena
}

// SourceOf returns the source of a tensor's memory; false if it is unknown.
func SourceOf(t Tensor) (Source, bool) {
	if !t.Valid() {
		return nil, false
	}
	p, ok := t.buf.Home.(*Pool)
	if !ok {
		return nil, false
	}
	return p.memory.source, true
}

// Elsewhere reports whether a tensor is known to be in the memory of another device than the
// arena's.
func Elsewhere(a Arena, t Tensor) bool {
	if !t.Valid() {
		return false
	}
	here, ok := a.(*Pool)
	there, known := t.buf.Home.(*Pool)
	return ok && known && here.memory != there.memory
}
