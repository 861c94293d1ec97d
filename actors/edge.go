package actors

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// A run may keep its data, and the weights of its first stage, on the edge: the host of the coordinator and of that stage's
// ranks. What the first stage gives to others, and gets from them, are activations and their gradients.

// ErrEdge: something was to leave the edge that has to stay there.
var ErrEdge = errors.New("it stays on the edge (cluster.edge)")

// onCloud reports whether a process has ranks, and none of the first stage.
func (s *Spec) onCloud(address string) bool {
	some := false
	for rank, host := range s.Hosts {
		if host != address {
			continue
		}
		if s.place(rank)[grid.Pipeline] == 0 {
			return false
		}
		some = true
	}
	return some
}

// Edge reports whether data and the first stage's weights stay on the edge.
func (c *Codec) Edge() bool { return c.spec.Edge }

// Leave says whether a message may leave for the process at an address.
func (c *Codec) Leave(m any, address string) error {
	if !c.spec.Edge || !c.spec.onCloud(address) {
		return nil
	}
	switch m := m.(type) {
	case *Data, *StageState, *TiedGradient:
		return fmt.Errorf("%s for %s: %w", Name(m), address, ErrEdge)
	case *Weight:
		if m.Err == nil && c.spec.EdgeParams[m.Param] {
			return fmt.Errorf("the weight %s for %s: %w", m.Param, address, ErrEdge)
		}
	}
	return nil
}

// Name is what a message is called in the account of what has left a process.
func Name(m any) string {
	switch m := m.(type) {
	case *Transfer:
		if m.Kind == scheduler.BackwardEdge {
			return fmt.Sprintf("gradients for chunk %d", m.To)
		}
		return fmt.Sprintf("activations for chunk %d", m.To)
	case *Weight:
		return "weight " + m.Param
	}
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", m), "*"), "actors."))
}
