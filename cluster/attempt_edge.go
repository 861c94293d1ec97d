package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
)

// onEdge reports whether a worker may see what the edge keeps: one that has ranks of stage 0, or any where nothing is
// kept.
func (a *attempt) onEdge(s *share) bool {
	return !a.cfg.Cluster.Edge || s != nil && slices.ContainsFunc(s.ranks, func(rank int) bool { return a.cfg.StageOf(rank) == 0 })
}

// checkEdge refuses ranks of stage 0 on another host than this one, where the data are.
func (a *attempt) checkEdge() error {
	if !a.cfg.Cluster.Edge {
		return nil
	}
	for _, s := range a.busy() {
		if !a.onEdge(s) {
			continue
		}
		if err := s.checkHere(); err != nil {
			return fmt.Errorf("cluster.edge keeps data and the weights of stage 0 on this host, and worker %q, which has ranks of it, %w", s.Name,
				err)
		}
	}
	return nil
}

// checkHere refuses a worker of another host: one that says that it is there, or that has dialled from there. Both ends of a
// tunnel look alike: see SECURITY.md.
func (s *share) checkHere() error {
	for _, at := range []struct{ what, address string }{{"is at", s.Address}, {"takes tensors at", s.DataAddress},
		{"has dialled from", s.Remote}} {
		if at.address == "" && at.what == "takes tensors at" {
			continue // at its address
		}
		here, err := isHere(hostOf(at.address))
		if err != nil {
			return err
		}
		if !here {
			return fmt.Errorf("%s %s", at.what, cmp.Or(hostOf(at.address), "an address that is not known"))
		}
	}
	return nil
}

// isHere reports whether an address is one of this host's.
func isHere(host string) (bool, error) {
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return ip != nil, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("the addresses of this host: %w", err)
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}), nil
}
