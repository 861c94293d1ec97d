package tensorops

// Peer is a Device that copies from the memory of some others, without a way through the host.
type Peer interface {
	Device
	// CopiesFrom reports whether List.PeerCopy of this device's streams takes tensors of
	// another's. It may ask the devices, and is asked before the first one is recorded.
	CopiesFrom(Device) bool
}

// PageLocker is a Device with memory of the host's that it reads and writes on its own, and
// other devices of its kind do: what is uploaded from there, or fetched to there, is not copied
// on the way.
type PageLocker interface {
	Device
	// NewHostArena makes an arena of such memory. Close it before the device.
	NewHostArena(name string) Arena
}

// SourceOf is where a tensor's memory comes from; false if that is not known.
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

// Elsewhere reports whether a tensor is surely in the memory of another device than an arena's.
func Elsewhere(a Arena, t Tensor) bool {
	if !t.Valid() {
		return false
	}
	here, ok := a.(*Pool)
	there, known := t.buf.Home.(*Pool)
	return ok && known && here.memory != there.memory
}
