package cluster

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops"
)

// rankGroups are the groups of a worker's ranks; their other members may be in other processes. Each
// group is opened when the rank's stage is built; by then the mesh knows the attempt. The coordinator
// detects a failed process and ends the attempt; until then the groups wait.
type rankGroups struct {
	mesh      *mesh.Mesh
	attempt   uuid.UUID
	grid      *grid.Grid
	processes []uuid.UUID // of all ranks

	mu      sync.Mutex
	members map[int][]rankGroup // by rank
	failed  error               // why no more groups are opened
}

// Of implements plan.Groups.
func (g *rankGroups) Of(rank int, d grid.Dimension) tensorops.Group {
	of := g.grid.Group(rank, d)
	if len(of) == 1 {
		return nil
	}
	own, in := 0, make([]lane.ID, len(of))
	for i, r := range of {
		in[i] = lane.ID(g.processes[r])
		if r == rank {
			own = i
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := g.open(g.grid.Name(rank, d), in, own)
	if err != nil {
		return unopened{tensorops.DryGroup{Place: own, Members: len(of)}, fmt.Errorf("rank %d: %w", rank, err)}
	}
	if g.members == nil {
		g.members = make(map[int][]rankGroup)
	}
	g.members[rank] = append(g.members[rank], rankGroup{d, m})
	return m
}

func (g *rankGroups) open(name string, processes []lane.ID, rank int) (*collective.Group, error) {
	if g.failed != nil {
		return nil, g.failed
	}
	port := g.mesh.Groups(g.attempt)
	if port == nil {
		return nil, errors.New("the attempt has ended")
	}
	return port.Open(name, processes, rank)
}

// Fail implements plan.Groups. Members in other processes learn from the coordinator why the attempt ends, so these
// ranks leave their groups silently.
func (g *rankGroups) Fail(err error) {
	g.mu.Lock()
	members := g.members
	g.members, g.failed = nil, errors.Join(err, g.failed)
	g.mu.Unlock()
	for _, of := range members {
		for _, m := range of {
			m.group.Abandon(err)
		}
	}
}

// Status implements plan.Groups.
func (g *rankGroups) Status(rank int) (w actors.GroupWait, ok bool) {
	g.mu.Lock()
	of := g.members[rank]
	g.mu.Unlock()
	for _, m := range of {
		if w, ok = plan.GroupWait(g.grid, rank, m.dim, m.group); ok {
			break
		}
	}
	return w, ok
}

// rankGroup is a rank's group along a dimension.
type rankGroup struct {
	dim   grid.Dimension
	group *collective.Group
}

// unopened is a group that could not be opened; its collectives fail.
type unopened struct {
	tensorops.DryGroup
	err error
}

// Start implements tensorops.Group.
func (u unopened) Start(_ *tensorops.Op, done func(error)) { done(u.err) }
