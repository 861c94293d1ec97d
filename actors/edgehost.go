package actors

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

// A run may keep its data, and the weights of its first stage, on the edge: the host of the
// coordinator and of that stage's ranks. The first stage sends and receives only activations and
// their gradients.

// ErrEdge: a message would have left the edge with content that must stay there.
var ErrEdge = errors.New("it must stay on the edge host (cluster.edge)")

// ErrNotForIt: a process would have received content that none of its ranks needs.
var ErrNotForIt = errors.New("the process has no rank that needs it")

// Edge reports whether data and the first stage's weights stay on the edge.
func (c *Codec) Edge() bool { return c.spec.Edge }

// Leave checks whether a message may be sent to the process at an address: private content goes
// only to processes that need it.
func (c *Codec) Leave(m any, address string) error {
	allowed := true
	switch m := m.(type) {
	case *Data:
		allowed = c.spec.reads(address, m.Chunk)
	case *StageState:
		allowed = c.boss != "" && address == c.boss
	case *TiedGradient:
		allowed = c.spec.has(address, func(rank int) bool {
			stage := c.spec.stageOf(rank)
			return slices.Contains(c.spec.TiedRanks, stage) && (!c.spec.Edge || stage == 0)
		})
	case *Weight:
		allowed = m.Err != nil || c.spec.holds(address, m.Param)
	case *RankState:
		allowed = m.Err != nil || address != "" && c.spec.mayRead(address, m.Rank, m.Shadow)
	case *StepGradient:
		allowed = address != "" && c.spec.shadowHere(address, m.Rank)
	}
	switch {
	case allowed:
		return nil
	case c.spec.Edge && !c.spec.hasStage(address, 0):
		return fmt.Errorf("sending %s to %s: %w", Name(m), address, ErrEdge)
	}
	return fmt.Errorf("sending %s to %s: %w", Name(m), address, ErrNotForIt)
}

// Name returns the name of a message in the record of what has left a process.
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
