package stages

import "github.com/troupe-ml/troupe/tensorops"

// globalbalance.go has the balance loss of BalanceConfig.Global. A router's loads of a step are counted in its input gradients, which
// every schedule records in ascending microbatch order, as the forwards of an unpipelined run are. So they are those of the same
// microbatches in every layout, a forward that is recomputed counts once, and a validation exchanges nothing. Loads are whole numbers
// of float32, exact up to MaxLoad, so the order in which replicas are added changes no bit.

// stepLoads are the loads of the step's microbatches so far, of each router with such a balance loss.
type stepLoads map[*expertFFN]tensorops.Tensor

// allocateLoads allocates the loads of the routers on this rank.
func (s *Stage) allocateLoads(l *tensorops.List) {
	for _, f := range s.model.withExperts() {
		if !f.spec.balancesGlobally() || !f.isOn(s) {
			continue
		}
		if s.loads == nil {
			s.loads = make(stepLoads)
		}
		s.loads[f] = l.Alloc(tensorops.Float32, 1, f.spec.count)
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

// beginLoads counts the microbatch's loads, and starts their sum over the replicas.
func (f *expertFFN) beginLoads(c *pass, s *expertState) loadSum {
	if !f.spec.balancesGlobally() {
		return loadSum{}
	}
	return f.beginLoadSum(c, s, 1, c.stage.opts.Data.Group)
}

// endLoads adds the loads to those of the step, and the gradient of the balance loss to that of the logits.
func (f *expertFFN) endLoads(c *pass, s *expertState, n loadSum) {
	if !f.spec.balancesGlobally() {
		return
	}
	n.end(c)
	all := c.stage.loads[f]
	c.Add(all, all, n.loads)
	n.drop(c.List)
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
