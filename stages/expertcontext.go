package stages

import "github.com/troupe-ml/troupe/tensorops"

// expertcontext.go has what layers with experts do in a context group, and in a tensor group with whole experts (expertrows.go). Each rank
// routes its own positions. Only the balance loss needs those of the others: its gradient is that of a product of an expert's load and the
// sum of its shares, where the load is held fixed. So ranks tell each other the loads; they are whole numbers, which add up exactly. The
// shares of each rank are part of a sum, like all gradients and statistics.
//
// The length of a microbatch may have to be a multiple of a number that the grid needs. Routers route such added positions
// (Microbatch.Extra), but no loss, load or statistic counts them, so that all of these are those of one rank.

// counted is how a microbatch counts in the balance of a router.
type counted struct {
	experts tensorops.Tensor // the experts of each row, −1 in rows that do not count; invalid: all rows count
	loadSum                  // see tensorops.RouteOpts.Loads; without loads this rank has all rows, or nothing needs them
}

func (n *counted) drop(l *tensorops.List) {
	free(l, &n.experts)
	n.loadSum.drop(l)
}

// choices returns the experts of each row, −1 in rows that do not count.
func (s *expertState) choices() tensorops.Tensor {
	if s.counted.experts.Valid() {
		return s.counted.experts
	}
	return s.experts
}

// beginCount counts the rows of each expert, and begins to add those of the other ranks.
func (f *expertFFN) beginCount(c *pass, s *expertState) {
	n := &s.counted
	if c.mb.Extra > 0 {
		n.experts = c.withoutExtra(s.experts)
	}
	group := c.stage.opts.Context
	if group.size() <= 1 && !c.routesPart() || f.spec.balancesGlobally() { // see beginLoads, whose ranks include these
		return
	}
	if f.spec.balance == 0 && c.stage.routers[f] == nil { // a loss without weight is a figure of the step, unless the layer is frozen
		return
	}
	n.loadSum = f.beginLoadSum(c, s, max(f.spec.route(c.mb.Sequences).Sequences, 1), group.Group)
}

// routeGrad returns the options of the router's gradient, after a wait for the loads.
func (f *expertFFN) routeGrad(c *pass, s *expertState) tensorops.RouteOpts {
	s.counted.end(c)
	o := f.spec.routeGrad(c.mb.Sequences*(c.whole()-c.mb.Extra), c.mb.Sequences)
	o.Loads = s.counted.loads
	return o
}

// withoutExtra returns a copy of the experts of each row, with −1 for the positions that the grid has added.
func (c *pass) withoutExtra(experts tensorops.Tensor) tensorops.Tensor {
	own, last := c.AllocLike(experts), c.whole()-c.mb.Extra
	c.Copy(own, experts)
	from, to := c.routedPositions()
	for b := range c.mb.Sequences {
		for _, r := range c.routedRuns() {
			first := b * (to - from)
			if from := min(r.lo+max(last-r.first, 0), r.hi); from < r.hi && own.Valid() {
				c.Fill(own.RowRange(first+from, first+r.hi), -1)
			}
		}
	}
	return own
}
