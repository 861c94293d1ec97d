package driver

import (
	"errors"
	"unsafe"
)

// CanAccess reports whether a device can read and write another's memory on its own, over
// NVLink or PCIe.
func (d *Driver) CanAccess(g, peer *Device) (bool, error) {
	var can int32
	err := d.do(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), g.handle, peer.handle)
	return can != 0, err
}

// findPeers asks of all pairs. Of one that the driver says nothing of, nothing is known.
func (d *Driver) findPeers(all []*Device) {
	for _, g := range all {
		for _, peer := range all {
			if g == peer {
				continue
			}
			if can, err := d.CanAccess(g, peer); err == nil && can {
				g.Peers = append(g.Peers, peer.Ordinal)
			}
		}
	}
}

// EnablePeer gives the calling thread's context access to the memory of another device's. It
// lasts as long as both contexts do.
func (d *Driver) EnablePeer(peer Context) error {
	err := d.do(cuCtxEnablePeerAccess, uintptr(peer), 0)
	var e *Error
	if errors.As(err, &e) && e.Code == codePeerAlreadyEnabled {
		return nil // by another user of this context
	}
	return err
}

// CopyPeer copies memory of one context's device to that of another's, in the order of a
// stream of the one that takes.
func (d *Driver) CopyPeer(to Address, taker Context, from Address, giver Context, bytes int, s Stream) error {
	return d.do(cuMemcpyPeerAsync, uintptr(to), uintptr(taker), uintptr(from), uintptr(giver), uintptr(bytes), uintptr(s))
}
