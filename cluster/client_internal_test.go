package cluster

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// TestUnreachable: a client tries again if it finds no coordinator, but not if the coordinator refuses it.
func TestUnreachable(t *testing.T) {
	no := fmt.Errorf("%w: not this cluster's", transport.ErrRefused)
	nobody := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		lost bool
	}{
		{&locate.SearchError{Lookup: discovery.ErrNone}, true},
		{&locate.SearchError{Tried: []error{nobody}}, true},
		{&locate.SearchError{Tried: []error{no, nobody}}, true},
		{&locate.SearchError{Tried: []error{no}}, false},
		{nobody, true},
		{no, false},
	} {
		if err := unreachable(c.err); errors.Is(err, ErrLost) != c.lost {
			t.Errorf("%v: %v; want that it is lost: %v", c.err, err, c.lost)
		}
	}
}
