package optest

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// deltaCases are those of linear attention: causal convolutions, gates, and the gated delta rule.
func deltaCases() []Case {
	var cases []Case
	for _, c := range convs {
		cases = append(cases,
			Case{"causal_conv/" + c.String(), tensorops.KindCausalConv, c.forward},
			Case{"causal_conv_grad/" + c.String(), tensorops.KindCausalConvGrad, c.grad},
			Case{"causal_conv_weight_grad/" + c.String(), tensorops.KindCausalConvWeightGrad, c.weightGrad})
	}
	cases = append(cases,
		Case{"delta_gates/shapes", tensorops.KindDeltaGates, func(b *builder) { eachGates(b, checkGates) }},
		Case{"delta_gates_grad/shapes", tensorops.KindDeltaGatesGrad, func(b *builder) { eachGates(b, checkGatesGrad) }},
		Case{"delta_gates_weight_grad/shapes", tensorops.KindDeltaGatesWeightGrad, func(b *builder) { eachGates(b, checkGatesWeightGrad) }})
	cases = eitherType(cases)
	for _, d := range deltas {
		both := []Case{
			{"gated_delta/" + d.String(), tensorops.KindGatedDelta, d.forward},
			{"gated_delta_grad/" + d.String(), tensorops.KindGatedDeltaGrad, d.grad},
		}
		if d.either {
			both = eitherType(both)
		}
		cases = append(cases, both...)
	}
	return cases
}

// conv is a causal convolution.
type conv struct {
	batch, positions, channels, taps int

	docs docs
}

func (c conv) String() string {
	s := fmt.Sprintf("B=%d T=%d C=%d K=%d", c.batch, c.positions, c.channels, c.taps)
	if c.docs != noDocs {
		s += fmt.Sprintf(" docs=%s", c.docs)
	}
	return s
}

var convs = []conv{
	{1, 0, 3, 4, noDocs}, {1, 1, 1, 1, noDocs}, {1, 1, 5, 4, noDocs}, {3, 2, 7, 4, noDocs}, {2, 17, 5, 4, noDocs}, {2, 67, 33, 4, noDocs},
	{1, 130, 515, 4, noDocs}, {2, 70, 37, 2, noDocs}, {1, 33, 9, 16, noDocs},
	{2, 17, 5, 4, tokenDocs}, {2, 67, 33, 4, shortDocs}, {1, 130, 515, 4, longDocs}, {2, 70, 7, 4, anyStarts}, {1, 33, 9, 16, shortDocs},
}

func (c conv) opts(b *builder) tensorops.ConvOpts {
	return tensorops.ConvOpts{Batch: c.batch, Starts: c.docs.starts(b, c.batch, c.positions, c.positions, 0)}
}

// inputs are x, a view of columns, and the weights.
func (c conv) inputs(b *builder) (x, weight tensorops.Tensor) {
	_, x = b.framed(c.batch*c.positions, c.channels)
	return x, b.single(c.channels, 1, c.taps)
}

func (c conv) forward(b *builder) {
	x, weight := c.inputs(b)
	y := b.garbage(c.batch*c.positions, c.channels)
	b.CausalConv(y, x, weight, none, c.opts(b))
	b.check(y, "y").scaled(1)
	state := b.normal(c.batch, c.taps-1, c.channels)
	b.CausalConv(y, x, weight, state, c.opts(b))
	b.check(y, "y after a state").scaled(1)
	b.check(state, "the state after it")
}

func (c conv) grad(b *builder) {
	x, weight := c.inputs(b)
	whole, dx := b.framed(c.batch*c.positions, c.channels)
	b.Fill(whole, math.NaN())
	b.CausalConvGrad(dx, b.normal(c.batch*c.positions, c.channels), x, weight, c.opts(b))
	b.check(whole, "dx").scaled(1)
}

func (c conv) weightGrad(b *builder) {
	x, weight := c.inputs(b)
	dweight := b.single(c.channels, c.taps)
	b.CausalConvWeightGrad(dweight, b.normal(c.batch*c.positions, c.channels), x, weight, c.opts(b))
	b.check(dweight, "dweight").summed(c.batch * c.positions)
}

// eachGates calls check for inputs of several sizes, some of them large.
func eachGates(b *builder, check func(b *builder, rows, heads int, a, aLog, dtBias tensorops.Tensor)) {
	for _, s := range [][2]int{{0, 3}, {1, 1}, {5, 7}, {130, 2}, {67, 33}} {
		for _, deviation := range []float64{1, 30} {
			check(b, s[0], s[1], b.spread(0, deviation, s[0], s[1]), b.single(s[1]), b.single(s[1]))
		}
	}
}

// gateOpts lets documents share the rows of some cases, as one sequence.
func gateOpts(b *builder, rows int) tensorops.DeltaGatesOpts {
	if rows != 5 && rows != 67 {
		return tensorops.DeltaGatesOpts{}
	}
	return tensorops.DeltaGatesOpts{Batch: 1, Starts: shortDocs.starts(b, 1, rows, rows, 0)}
}

func checkGates(b *builder, rows, heads int, a, aLog, dtBias tensorops.Tensor) {
	gates := b.garbage32(rows, 2*heads)
	b.DeltaGates(gates, a, b.spread(0, 3, rows, heads), aLog, dtBias, gateOpts(b, rows))
	b.check(gates, "gates of %d×%d", rows, heads).scaled(1)
}

// madeGates are gates of a, with the numbers of dgates.
func madeGates(b *builder, rows, heads int, a, aLog, dtBias tensorops.Tensor) (gates, dgates tensorops.Tensor) {
	gates = b.garbage32(rows, 2*heads)
	b.DeltaGates(gates, a, b.spread(0, 3, rows, heads), aLog, dtBias, gateOpts(b, rows))
	return gates, b.single(rows, 2*heads)
}

func checkGatesGrad(b *builder, rows, heads int, a, aLog, dtBias tensorops.Tensor) {
	gates, dgates := madeGates(b, rows, heads, a, aLog, dtBias)
	da, db := b.garbage(rows, heads), b.garbage(rows, heads)
	b.DeltaGatesGrad(da, db, dgates, gates, a, aLog, dtBias)
	b.check(da, "da of %d×%d", rows, heads).scaled(1)
	b.check(db, "db of %d×%d", rows, heads).scaled(1)
}

func checkGatesWeightGrad(b *builder, rows, heads int, a, aLog, dtBias tensorops.Tensor) {
	gates, dgates := madeGates(b, rows, heads, a, aLog, dtBias)
	daLog, ddtBias := b.single(heads), b.single(heads)
	b.DeltaGatesWeightGrad(daLog, ddtBias, dgates, gates, a, aLog, dtBias)
	b.check(daLog, "daLog of %d×%d", rows, heads).summed(rows)
	b.check(ddtBias, "ddtBias of %d×%d", rows, heads).summed(rows)
}

// delta is one operation with its gradient.
type delta struct {
	batch, positions, keyHeads, valueHeads, dk, dv int

	decay  float64 // standard deviation of the projection that decays come from; 0: 1
	views  bool    // q, k and v are columns of one matrix, their gradients of another
	either bool    // also in bfloat16
	docs   docs
}

func (d delta) String() string {
	s := fmt.Sprintf("B=%d T=%d HK=%d HV=%d DK=%d DV=%d", d.batch, d.positions, d.keyHeads, d.valueHeads, d.dk, d.dv)
	if d.decay > 0 {
		s += fmt.Sprintf(" decay=%g", d.decay)
	}
	if d.views {
		s += " views"
	}
	if d.docs != noDocs {
		s += fmt.Sprintf(" docs=%s", d.docs)
	}
	return s
}

// Chunks end within them, at their ends and one position before.
var deltas = []delta{
	{batch: 1, keyHeads: 1, valueHeads: 1, dk: 4, dv: 4},
	{batch: 1, positions: 1, keyHeads: 1, valueHeads: 1, dk: 1, dv: 1},
	{batch: 3, positions: 1, keyHeads: 2, valueHeads: 6, dk: 5, dv: 7, either: true},
	{batch: 2, positions: 5, keyHeads: 1, valueHeads: 2, dk: 3, dv: 6, views: true},
	{batch: 2, positions: 17, keyHeads: 2, valueHeads: 4, dk: 16, dv: 8, views: true, either: true},
	{batch: 1, positions: 64, keyHeads: 1, valueHeads: 1, dk: 33, dv: 17},
	{batch: 2, positions: 65, keyHeads: 1, valueHeads: 3, dk: 12, dv: 20},
	{batch: 1, positions: 131, keyHeads: 2, valueHeads: 2, dk: 24, dv: 40, either: true},
	{batch: 1, positions: 200, keyHeads: 1, valueHeads: 2, dk: 32, dv: 32, decay: 20},
	{batch: 1, positions: 70, keyHeads: 1, valueHeads: 1, dk: 128, dv: 128},
	{batch: 1, positions: 35, keyHeads: 1, valueHeads: 1, dk: 256, dv: 136},

	// Documents that share a sequence.
	{batch: 2, positions: 17, keyHeads: 2, valueHeads: 4, dk: 5, dv: 8, docs: tokenDocs},
	{batch: 2, positions: 131, keyHeads: 1, valueHeads: 2, dk: 24, dv: 20, docs: shortDocs, either: true},
	{batch: 1, positions: 200, keyHeads: 1, valueHeads: 2, dk: 32, dv: 32, decay: 20, docs: longDocs},
	{batch: 1, positions: 128, keyHeads: 1, valueHeads: 1, dk: 16, dv: 16, docs: middleDoc},
}

func (d delta) opts() tensorops.DeltaOpts {
	return tensorops.DeltaOpts{Batch: d.batch, KeyHeads: d.keyHeads, ValueHeads: d.valueHeads, Eps: 1e-6}
}

// split cuts a fused matrix in its three parts.
func (d delta) split(t tensorops.Tensor) (q, k, v tensorops.Tensor) {
	keys := d.keyHeads * d.dk
	return t.Columns(0, keys), t.Columns(keys, 2*keys), t.Columns(2*keys, t.Cols())
}

func (d delta) rows() int { return d.batch * d.positions }

func (d delta) width() int { return 2*d.keyHeads*d.dk + d.valueHeads*d.dv }

// inputs are q, k, v and the gates.
func (d delta) inputs(b *builder) (q, k, v, gates tensorops.Tensor) {
	if d.views {
		q, k, v = d.split(b.normal(d.rows(), d.width()))
	} else {
		q, k, v = b.normal(d.rows(), d.keyHeads*d.dk), b.normal(d.rows(), d.keyHeads*d.dk), b.normal(d.rows(), d.valueHeads*d.dv)
	}
	gates = b.garbage32(d.rows(), 2*d.valueHeads)
	b.inSingle(func() {
		a := b.spread(-2, max(d.decay, 1), d.rows(), d.valueHeads)
		b.DeltaGates(gates, a, b.normal(d.rows(), d.valueHeads), b.normal(d.valueHeads), b.normal(d.valueHeads),
			tensorops.DeltaGatesOpts{Batch: d.batch, Starts: d.docs.starts(b, d.batch, d.positions, d.positions, 0)})
	})
	return q, k, v, gates
}

func (d delta) forward(b *builder) {
	q, k, v, gates := d.inputs(b)
	o := b.garbage(d.rows(), d.valueHeads*d.dv)
	b.GatedDelta(o, q, k, v, gates, none, d.opts())
	b.check(o, "o").scaled(0.1)
	state := b.single(d.batch, d.valueHeads, d.dk, d.dv)
	b.GatedDelta(o, q, k, v, gates, state, d.opts())
	b.check(o, "o after a state").scaled(0.1)
	b.check(state, "the state after it").scaled(1)
}

func (d delta) grad(b *builder) {
	q, k, v, gates := d.inputs(b)
	do, dgates := b.normal(d.rows(), d.valueHeads*d.dv), b.garbage32(d.rows(), 2*d.valueHeads)
	if d.views {
		all := b.garbage(d.rows(), d.width())
		dq, dk, dv := d.split(all)
		b.GatedDeltaGrad(dq, dk, dv, dgates, do, q, k, v, gates, d.opts())
		b.check(all, "dq, dk, dv").scaled(1)
	} else {
		dq, dk, dv := b.garbage(q.Shape()...), b.garbage(k.Shape()...), b.garbage(v.Shape()...)
		b.GatedDeltaGrad(dq, dk, dv, dgates, do, q, k, v, gates, d.opts())
		b.check(dq, "dq").scaled(0.1)
		b.check(dk, "dk").scaled(0.1)
		b.check(dv, "dv").scaled(0.1)
	}
	b.check(dgates, "dgates").scaled(1)
}
