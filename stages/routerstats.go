package stages

import (
	"iter"

	"github.com/troupe-ml/troupe/tensorops"
)

// RouterStats are sums over the microbatches of a step of what a layer's router did. Layers whose weights are all
// frozen have none.
type RouterStats struct {
	Layer   int       // index in Model.Symbols
	Rows    float64   // tokens
	AuxLoss float64   // the balance loss of each microbatch, without its weight, times its tokens; see Stage.RouterStats
	Entropy float64   // of the scores, in nats; of sigmoids divided by their sum
	ZLoss   float64   // the z-loss of each token, without its weight; 0 if the weight is 0
	Counts  []float64 // tokens by expert
}

// routerTotals is a router's statistics on the device.
type routerTotals struct {
	layer int
	sums  tensorops.Tensor // see tensorops.RouteStats
	host  []float64
	// With BalanceConfig.Global: the balance loss, which sums has only for the loads of each microbatch.
	global     tensorops.Tensor
	globalHost [1]float64
}

// withExperts returns the layers with experts, each with its index in the model.
func (m *Model) withExperts() iter.Seq2[int, *expertFFN] {
	return func(yield func(int, *expertFFN) bool) {
		for i, layer := range m.layers {
			b := blockOf(layer)
			if b == nil {
				continue
			}
			if f, ok := b.ffn.(*expertFFN); ok && !yield(i, f) {
				return
			}
		}
	}
}

// isOn reports whether the layer of these experts is on this rank.
func (f *expertFFN) isOn(s *Stage) bool { return s.byParam[f.router.param.Index] != nil }

// allocateRouters allocates the statistics of the routers on this rank.
func (s *Stage) allocateRouters(l *tensorops.List) {
	for i, f := range s.model.withExperts() {
		if frozenLayer(s.model.layers[i]) || !f.isOn(s) {
			continue
		}
		n := tensorops.RouteCounts + f.spec.count
		t := &routerTotals{layer: i, sums: l.Alloc(tensorops.Float64, n), host: make([]float64, n)}
		l.Fill(t.sums, 0)
		if f.spec.balancesGlobally() {
			t.global = l.Alloc(tensorops.Float64, 1)
			l.Fill(t.global, 0)
		}
		if s.routers == nil {
			s.routers = make(map[*expertFFN]*routerTotals)
		}
		s.routers[f] = t
		s.routed = append(s.routed, t)
	}
}

// RouterStats records the end of a step's statistics, and begins those of the next step. The returned function returns
// them after the list has completed, in the model's order. Of a tensor group, only the first rank returns any: all route the same tokens,
// unless they have whole experts. Where ranks share the positions of a microbatch, each returns its part of the sums.
func (s *Stage) RouterStats(l *tensorops.List) func() []RouterStats {
	for _, t := range s.routed {
		l.Fetch(tensorops.HostBytes(t.host), t.sums)
		if t.global.Valid() {
			l.Fetch(tensorops.HostBytes(t.globalHost[:]), t.global)
		}
		t.clear(l)
	}
	if s.opts.Tensor.rank() > 0 && !s.opts.wholeExperts() { // the ranks of a tensor group route the same tokens
		return func() []RouterStats { return nil }
	}
	return func() (all []RouterStats) {
		for _, t := range s.routed {
			if t.host[tensorops.RouteRows] > 0 {
				all = append(all, RouterStats{Layer: t.layer, Rows: t.host[tensorops.RouteRows], AuxLoss: t.balance(),
					Entropy: t.host[tensorops.RouteEntropy], ZLoss: t.host[tensorops.RouteZ],
					Counts: append([]float64(nil), t.host[tensorops.RouteCounts:]...)})
			}
		}
		return all
	}
}

// clear ends the statistics of a step.
func (t *routerTotals) clear(l *tensorops.List) {
	l.Fill(t.sums, 0)
	if t.global.Valid() {
		l.Fill(t.global, 0)
	}
}

// balance returns the fetched balance loss.
func (t *routerTotals) balance() float64 {
	if t.global.Valid() {
		return t.globalHost[0]
	}
	return t.host[tensorops.RouteBalance]
}

// count adds a microbatch to the statistics of the layer's router, and its loads to those that move the router's bias. Weight gradients
// are recorded in the order of the
// microbatches, so the sums are the same in every layout.
func (f *expertFFN) count(c *pass, s *expertState) {
	if t := c.stage.routers[f]; t != nil {
		o := f.spec.route(c.mb.Sequences)
		o.Loads = s.counted.loads
		c.RouteStats(t.sums, s.scores, s.choices(), s.offsets, s.logits, o)
	}
	if f.spec.router.Bias && !f.bias.frozen() {
		c.RouteCount(c.grad(f.bias), s.choices())
	}
}
