package forecast

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Link is a link between two devices: a message of n bytes takes LatencyUS microseconds plus n / BytesPerS seconds;
// 0: no time.
type Link struct {
	LatencyUS float64
	BytesPerS float64
}

// ms is the time of a message.
func (l Link) ms(bytes float64) float64 {
	ms := l.LatencyUS / 1e3
	if l.BytesPerS > 0 {
		ms += 1e3 * bytes / l.BytesPerS
	}
	return ms
}

// Nodes are hosts with equally many devices, filled with consecutive ranks: rank r is on node r / Devices.
type Nodes struct {
	Devices int  // of a node; 0: there is only one node, or it is not known
	Within  Link // between two devices of one node
}

// check rejects nodes that the devices do not fill.
func (n Nodes) check(devices int) error {
	if n.Devices < 0 || n.Devices > 0 && devices > n.Devices && devices%n.Devices != 0 {
		return fmt.Errorf("%w: %d devices are not a multiple of the %d devices of a node", ErrDevices, devices, n.Devices)
	}
	return nil
}

// joined reports whether a node has several devices.
func (n Nodes) joined() bool { return n.Devices > 1 }

// sites are a process for each rank, on the hosts of the nodes.
func (n Nodes) sites(ranks int) []plan.Site {
	sites := make([]plan.Site, ranks)
	for r := range sites {
		sites[r] = plan.Site{Process: strconv.Itoa(r), Host: strconv.Itoa(r / n.Devices)}
	}
	return sites
}

// on returns the devices with the links of a grid's ranks, if some links are faster than others.
func (d Devices) on(g *grid.Grid) Devices {
	if !d.Nodes.joined() || d.Message != nil || d.Group != nil {
		return d
	}
	type pair struct{ from, to int }
	known := make(map[pair]bool) // whether a stage's ranks send to another's within their nodes
	within := func(from, to int) bool {
		at := pair{from, to}
		inside, seen := known[at]
		if !seen {
			inside = d.Nodes.near(g, from, to)
			known[at] = inside
		}
		return inside
	}
	outer := d.link()
	d.Message = func(from, to int, bytes int64) float64 {
		if within(from, to) {
			return d.Nodes.Within.ms(float64(bytes))
		}
		return outer.ms(float64(bytes))
	}
	type group struct {
		stage int
		dim   grid.Dimension
	}
	links := make(map[group]Link)
	d.Group = func(stage int, dim grid.Dimension) (latencyMS, bytesPerS float64) {
		at := group{stage, dim}
		l, seen := links[at]
		if !seen {
			l = d.Nodes.slowest(g, stage, dim, outer)
			links[at] = l
		}
		return l.LatencyUS / 1e3, l.BytesPerS
	}
	return d
}

// near reports whether every rank of a stage sends to a rank on its own node.
func (n Nodes) near(g *grid.Grid, from, to int) bool {
	for rank := range ofStage(g, from) {
		at := g.Coordinates(rank)
		at[grid.Pipeline] = to
		at[grid.Tensor] = min(at[grid.Tensor], g.TensorSize(to)-1)
		if g.Rank(at)/n.Devices != rank/n.Devices {
			return false
		}
	}
	return true
}

// ofStage returns the ranks of a stage.
func ofStage(g *grid.Grid, stage int) iter.Seq[int] {
	return func(yield func(int) bool) {
		at := grid.Coordinates{grid.Pipeline: stage}
		for at[grid.Data] = range g.Size(grid.Data) {
			for at[grid.Context] = range g.Size(grid.Context) {
				for at[grid.Tensor] = range g.TensorSize(stage) {
					if !yield(g.Rank(at)) {
						return
					}
				}
			}
		}
	}
}

// slowest is among of the group of a stage that has the slowest links: all ranks of it wait for that one, or for the
// next stages that do. Groups lie on nodes in as many ways as a node has devices at most, one after the other.
func (n Nodes) slowest(g *grid.Grid, stage int, dim grid.Dimension, outer Link) (l Link) {
	seen := make(map[int]bool) // ranks of groups that were looked at
	groups := 0
	for rank := range ofStage(g, stage) {
		if seen[rank] {
			continue
		}
		ranks := g.Group(rank, dim)
		for _, r := range ranks {
			seen[r] = true
		}
		if other := n.among(ranks, outer); groups == 0 || other.ms(typicalBytes) > l.ms(typicalBytes) {
			l = other
		}
		if groups++; groups == n.Devices {
			break
		}
	}
	return l
}

// typicalBytes is the size of a message for comparing links.
const typicalBytes = 1 << 20

// among is what a message to the others of a group takes on average, where each sends as much to every other, of the member for
// which it takes the longest: the bytes for those of its node and for the rest go one after the other.
func (n Nodes) among(ranks []int, outer Link) (l Link) {
	on := make(map[int]int) // members by node
	for _, r := range ranks {
		on[r/n.Devices]++
	}
	others, first := len(ranks)-1, true
	for _, members := range on {
		if of := n.mixed(members-1, others, outer); first || of.ms(typicalBytes) > l.ms(typicalBytes) {
			l, first = of, false
		}
	}
	return l
}

// mixed is the mean link of a member with some of the others on its node.
func (n Nodes) mixed(inside, others int, outer Link) Link {
	switch inside {
	case others:
		return n.Within
	case 0:
		return outer
	}
	perByte := func(l Link, of int) float64 {
		if l.BytesPerS == 0 {
			return 0
		}
		return float64(of) / float64(others) / l.BytesPerS
	}
	l := Link{LatencyUS: max(outer.LatencyUS, n.Within.LatencyUS)}
	if s := perByte(n.Within, inside) + perByte(outer, others-inside); s > 0 {
		l.BytesPerS = 1 / s
	}
	return l
}
