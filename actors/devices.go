package actors

import (
	"fmt"
	"reflect"

	"github.com/troupe-ml/troupe/tensorops"
)

// device returns the device on which a rank computes.
func (s *Spec) device(rank int) tensorops.Device {
	if len(s.Devices) > 0 {
		return s.Devices[rank]
	}
	return s.Device
}

// checkDevices checks that every rank has a device.
func (s *Spec) checkDevices() error {
	if n := len(s.Devices); n > 0 && n != s.ranks() {
		return fmt.Errorf("%w: there are %d devices for %d ranks: give one for each rank, or one for all", ErrSpec, n, s.ranks())
	}
	for r := range s.ranks() {
		if s.host(r) != "" {
			continue
		}
		d := s.device(r)
		if d == nil {
			return fmt.Errorf("%w: rank %d has no device", ErrSpec, r)
		}
		if len(s.Devices) > 0 && !reflect.ValueOf(d).Comparable() {
			return fmt.Errorf("%w: the device of rank %d, a %T, is not comparable: pass a pointer", ErrSpec, r, d)
		}
	}
	return nil
}

// share reports whether two ranks are on the same device.
func (s *Spec) share(a, b int) bool {
	return s.host(a) == s.host(b) && (len(s.Devices) == 0 || s.Devices[a] == s.Devices[b])
}

// copiesFrom reports whether a rank's device can copy from another rank's memory, both in this
// process.
func (s *Spec) copiesFrom(to, from int) bool {
	if s.host(to) != "" || s.host(from) != "" {
		return false
	}
	p, ok := s.device(to).(tensorops.Peer)
	return ok && p.CopiesFrom(s.device(from))
}
