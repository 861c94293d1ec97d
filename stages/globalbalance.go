package stages

import "github.com/troupe-ml/troupe/tensorops"

// globalbalance.go has the balance loss of BalanceConfig.Global. A router's loads of a step are counted in its input gradients, which
// every schedule records in ascending microbatch order, as the forwards of an unpipelined run are. So they are those of the same
// microbatches in every layout, a forward that is recomputed counts once, and a validation exchanges nothing. Loads are whole numbers
// of float32, exact up to MaxLoad, so the order in which replicas are added changes no bit.

// loadSums are the loads of the step's microbatches so far, of each router with such a balance loss.
type loadSums map[*expertFFN]tensorops.Tensor

// allocateLoads allocates the loads of the routers on this rank.
func (s *Stage) allocateLoads(l *tensorops.List) {
	for _, f := range s.model.withExperts() {
		if !f.spec.balancesGlobally() || !f.isOn(s) {
			continue
		}
		if s.loads == nil {
			s.loads = make(loadSums)
		}
		s.loads[f] = l.Alloc(tensorops.Float32, f.spec.count)
		l.Fill(s.loads[f], 0)
	}
}

// clearLoads ends the loads of a step.
func (s *Stage) clearLoads(l *tensorops.List) {
	for _, f := range s.model.withExperts() {
		if t, has := s.loads[f]; has {
			l.Fill(t, 0)
		}
	}
}

// balancesGlobally reports whether the layer has the balance loss of BalanceConfig.Global.
func (x expertSpec) balancesGlobally() bool { return x.global && x.balance != 0 }

// sharing is an exchange of loads that is under way.
type sharing struct {
	loads  tensorops.Tensor // of this microbatch on all replicas
	number int              // see tensorops.List.Begin; 0: there are no replicas
}

// beginLoads counts the microbatch's loads, and starts their sum over the replicas.
func (f *expertFFN) beginLoads(c *pass, s *expertState) (e sharing) {
	if !f.spec.balancesGlobally() {
		return e
	}
	e.loads = c.Alloc(tensorops.Float32, f.spec.count)
	c.Fill(e.loads, 0)
	c.RouteCount(e.loads, s.choices())
	if g := c.stage.opts.Data.Group; c.stage.opts.Data.size() > 1 {
		e.number = c.beginCollective(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: e.loads, Src: e.loads, How: tensorops.Sum,
			Group: g})
	}
	return e
}

// endLoads adds the loads to those of the step, and the gradient of the balance loss to that of the logits.
func (f *expertFFN) endLoads(c *pass, s *expertState, e sharing) {
	if !f.spec.balancesGlobally() {
		return
	}
	if e.number > 0 {
		c.AwaitOne(e.number)
	}
	all := c.stage.loads[f]
	c.Add(all, all, e.loads)
	c.Free(e.loads)
	var sum tensorops.Tensor
	if t := c.stage.routers[f]; t != nil {
		sum = t.global
	}
	o := tensorops.BalanceOpts{Sigmoid: f.spec.router.Sigmoid}
	if c.addsOnce() {
		o.Weight = f.spec.balance
	}
	c.BalanceLoads(s.dlogits, sum, s.scores, s.choices(), all, o)
}
