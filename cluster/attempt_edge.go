package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
)

// onEdge reports whether a worker may see the data and the weights of stage 0. With cluster.edge only workers with ranks
// of stage 0 may; without it every worker may.
func (a *attempt) onEdge(s *share) bool {
	return !a.cfg.Cluster.Edge || s != nil && slices.ContainsFunc(s.ranks, func(rank int) bool { return a.cfg.StageOf(rank) == 0 })
}

// checkEdge refuses ranks of stage 0 on other hosts than this one, which has the data.
func (a *attempt) checkEdge() error {
	if !a.cfg.Cluster.Edge {
		return nil
	}
	for _, s := range a.busy() {
		if !a.onEdge(s) {
			continue
		}
		if err := s.checkHere(); err != nil {
			return fmt.Errorf("cluster.edge keeps the data and the weights of stage 0 on this host, but worker %q, which has ranks of stage 0, %w",
				s.Name,
				err)
		}
	}
	return nil
}

// checkHere refuses a worker on another host, by the addresses that it advertises and the one that it dials from. The near
// end of a tunnel looks like this host: see SECURITY.md.
func (s *share) checkHere() error {
	for _, at := range []struct{ what, address string }{{"is at", s.Address}, {"receives tensors at", s.DataAddress},
		{"connects from", s.Remote}} {
		if at.address == "" && at.what == "receives tensors at" {
			continue // it receives tensors at Address
		}
		here, err := isHere(hostOf(at.address))
		if err != nil {
			return err
		}
		if !here {
			return fmt.Errorf("%s %s", at.what, cmp.Or(hostOf(at.address), "an unknown address"))
		}
	}
	return nil
}

// isHere reports whether an address belongs to this host.
func isHere(host string) (bool, error) {
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return ip != nil, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list this host's addresses: %w", err)
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}), nil
}
