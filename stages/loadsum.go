package stages

import "github.com/troupe-ml/troupe/tensorops"

// loadSum are the loads of experts: how many rows of a microbatch chose each, on this rank and on others.
type loadSum struct {
	loads  tensorops.Tensor // R×E, for each of R runs of rows; invalid: they are not counted
	number int              // of the sum over the ranks, see tensorops.List.Begin; 0: it is complete
}

// beginLoadSum counts this rank's rows, as equal runs, and begins to add those of the other ranks of a group (nil: there is none), and of
// its tensor group if the ranks route different rows. Loads are whole numbers, so the order changes no bit.
func (f *expertFFN) beginLoadSum(c *pass, s *expertState, runs int, g tensorops.Group) (n loadSum) {
	n.loads = c.Alloc(tensorops.Float32, runs, f.spec.count)
	c.Fill(n.loads, 0)
	c.RouteCount(n.loads, s.choices())
	alone := g == nil || g.Size() <= 1
	if c.routesPart() {
		if alone {
			g, alone = c.tensor().Group, false
		} else {
			c.AllReduce(n.loads, tensorops.Sum, c.tensor().Group)
		}
	}
	if !alone {
		n.number = c.beginCollective(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: n.loads, Src: n.loads, How: tensorops.Sum,
			Group: g})
	}
	return n
}

// end waits for the sum.
func (n *loadSum) end(c *pass) {
	if n.number > 0 {
		c.AwaitOne(n.number)
		n.number = 0
	}
}

func (n *loadSum) drop(l *tensorops.List) {
	free(l, &n.loads)
	n.number = 0
}
