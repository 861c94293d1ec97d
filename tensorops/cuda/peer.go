package cuda

import (
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// peers are the devices of this process that were asked for, and whether this one has access to
// their memory.
type peers struct {
	mu   sync.Mutex
	have map[*Device]bool
}

// get is what is known of a device.
func (p *peers) get(other *Device) (has, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has, known = p.have[other]
	return has, known
}

func (p *peers) set(other *Device, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.have == nil {
		p.have = make(map[*Device]bool)
	}
	p.have[other] = has
}

// itself is the device that another type embeds.
func (d *Device) itself() *Device { return d }

// CopiesFrom is tensorops.Peer's: another GPU's memory, over NVLink or PCIe, as far as this one
// has access to it. It must not be called from the owner's thread.
func (d *Device) CopiesFrom(other tensorops.Device) bool {
	o, ok := other.(interface{ itself() *Device })
	if !ok {
		return false
	}
	giver := o.itself()
	if giver == d {
		return true
	}
	if has, known := d.peers.get(giver); known {
		return has
	}
	err := d.owner.call(func() error { return d.access(giver) })
	d.peers.set(giver, err == nil)
	return err == nil
}

// access gives this device access to another's memory. It runs on the owner's thread.
func (d *Device) access(giver *Device) error {
	if giver.gpu.Ordinal == d.gpu.Ordinal {
		return nil // the same GPU, opened once more
	}
	can, err := d.driver.CanAccess(d.gpu, giver.gpu)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf("%w: device %d has no access to the memory of device %d", ErrUnavailable, d.gpu.Ordinal, giver.gpu.Ordinal)
	}
	return d.driver.EnablePeer(giver.context)
}

// giverOf is the device that has a tensor in its memory, if this one may copy from there.
func (d *Device) giverOf(t tensorops.Tensor) (*Device, error) {
	from, _ := tensorops.SourceOf(t)
	s, ok := from.(*source)
	if !ok {
		return nil, fmt.Errorf("%w: %v is not in a GPU's memory", tensorops.ErrUnsupported, t)
	}
	if s.device == d {
		return d, nil
	}
	if has, _ := d.peers.get(s.device); !has {
		return nil, fmt.Errorf("%w: %v is in the memory of device %d, to which device %d has no access", tensorops.ErrUnsupported, t,
			s.device.gpu.Ordinal, d.gpu.Ordinal)
	}
	return s.device, nil
}

// peerCopy launches a copy from another device's memory, or from this one's.
func (s *stream) peerCopy(f *launchBatch, to, from tensorops.Tensor) error {
	bytes := from.Len() * from.DType().Size()
	if bytes == 0 {
		return nil
	}
	d := s.dev
	giver, err := d.giverOf(from)
	if err != nil {
		return err
	}
	at, there := driver.Address(address(to)), driver.Address(address(from))
	if giver == d { // made by this list, perhaps
		return d.driver.CopyWithin(at, there, bytes, s.handle)
	}
	return s.copies.arrive(f, at, bytes, func(at driver.Address, on driver.Stream) error {
		return d.driver.CopyPeer(at, d.context, there, giver.context, bytes, on)
	})
}
