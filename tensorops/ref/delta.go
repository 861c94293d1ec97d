package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// softplus is log(1 + e^x).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// deltaGates: g = −e^aLog·softplus(a + dtBias), β = σ(b).
func deltaGates(op *tensorops.Op) {
	a := op.DeltaGates()
	heads := a.A.Cols()
	for n := range a.A.Rows() {
		gates := rowOf(a.Gates, n)
		for h := range heads {
			gates[h] = -math.Exp(Values(a.ALog)[h]) * softplus(rowOf(a.A, n)[h]+Values(a.DTBias)[h])
			if a.Starts.Valid() && a.Resets(n, a.A.Rows()/a.Batch, startAt(a.Starts, n)) {
				gates[h] = tensorops.DeltaReset
			}
			gates[heads+h] = sigmoid(rowOf(a.B, n)[h])
		}
	}
}

// deltaGatesGrad: da = −dg·e^aLog·σ(a + dtBias), db = dβ·β·(1 − β).
func deltaGatesGrad(op *tensorops.Op) {
	a := op.DeltaGatesGrad()
	heads := a.A.Cols()
	for n := range a.A.Rows() {
		d, gates, in := rowOf(a.DGates, n), rowOf(a.Gates, n), rowOf(a.A, n)
		for h := range heads {
			if gates[h] <= tensorops.DeltaReset {
				rowOf(a.DA, n)[h] = 0
			} else {
				rowOf(a.DA, n)[h] = -d[h] * math.Exp(Values(a.ALog)[h]) * sigmoid(in[h]+Values(a.DTBias)[h])
			}
			beta := gates[heads+h]
			rowOf(a.DB, n)[h] = d[heads+h] * beta * (1 - beta)
		}
	}
}

// deltaGatesWeightGrad: daLog += Σ dg·g, ddtBias += Σ −dg·e^aLog·σ(a + dtBias).
func deltaGatesWeightGrad(op *tensorops.Op) {
	a := op.DeltaGatesWeightGrad()
	for n := range a.A.Rows() {
		for h, v := range rowOf(a.A, n) {
			d := rowOf(a.DGates, n)[h]
			if rowOf(a.Gates, n)[h] <= tensorops.DeltaReset {
				continue
			}
			Values(a.DALog)[h] += d * rowOf(a.Gates, n)[h]
			Values(a.DDTBias)[h] -= d * math.Exp(Values(a.ALog)[h]) * sigmoid(v+Values(a.DTBias)[h])
		}
	}
}

// unit is x·r·scale with r = 1/√(Σx² + eps), and r.
func unit(x []float64, eps, scale float64) (u []float64, r float64) {
	sum := eps
	for _, v := range x {
		sum += v * v
	}
	r = 1 / math.Sqrt(sum)
	for _, v := range x {
		u = append(u, v*r*scale)
	}
	return u, r
}

// unitGrad adds the gradient of unit's x to dx: scale·r·(du − x·r·(x·r·du)).
func unitGrad(dx, du, x []float64, r, scale float64) {
	var dot float64
	for i, v := range x {
		dot += v * r * du[i]
	}
	for i, v := range x {
		dx[i] += scale * r * (du[i] - v*r*dot)
	}
}

// deltaHead is one head of values of one sequence, with what a step of the recurrence reads.
type deltaHead struct {
	tensorops.DeltaSizes
	q, k, v, gates   tensorops.Tensor
	sequence, of, by int // the sequence, the head of values, and the head of keys that it reads
}

// deltaHeads calls f for each head of each sequence, in ascending order.
func deltaHeads(s tensorops.DeltaSizes, q, k, v, gates tensorops.Tensor, f func(h deltaHead)) {
	for b := range s.Batch {
		for h := range s.ValueHeads {
			f(deltaHead{s, q, k, v, gates, b, h, h / s.Group()})
		}
	}
}

// keys and values are the head's columns of position t.
func (h deltaHead) keys(x tensorops.Tensor, t int) []float64 {
	return rowOf(x, h.sequence*h.Positions+t)[h.by*h.KeyWidth:][:h.KeyWidth]
}

func (h deltaHead) values(x tensorops.Tensor, t int) []float64 {
	return rowOf(x, h.sequence*h.Positions+t)[h.of*h.ValueWidth:][:h.ValueWidth]
}

// gate is the head's g, or its β.
func (h deltaHead) gate(x tensorops.Tensor, t int) (g, beta *float64) {
	r := rowOf(x, h.sequence*h.Positions+t)
	return &r[h.of], &r[h.ValueHeads+h.of]
}

func (h deltaHead) scale() float64 { return 1 / math.Sqrt(float64(h.KeyWidth)) }

// step makes S[t] of S[t−1] in place. It returns n[t], and S[t−1] times its decay.
func (h deltaHead) step(state []float64, t int) (n, decayed []float64) {
	k, _ := unit(h.keys(h.k, t), h.Eps, 1)
	g, beta := h.gate(h.gates, t)
	for i := range state {
		state[i] *= math.Exp(*g)
	}
	decayed = append(decayed, state...)
	for c, v := range h.values(h.v, t) {
		for i, key := range k {
			v -= key * decayed[i*h.ValueWidth+c]
		}
		n = append(n, v)
		for i, key := range k {
			state[i*h.ValueWidth+c] += key * *beta * v
		}
	}
	return n, decayed
}

// gatedDelta is the recurrence of List.GatedDelta, position by position.
func gatedDelta(op *tensorops.Op) {
	a := op.GatedDelta()
	deltaHeads(a.DeltaSizes, a.Q, a.K, a.V, a.Gates, func(h deltaHead) {
		state, size := make([]float64, h.KeyWidth*h.ValueWidth), h.KeyWidth*h.ValueWidth
		at := (h.sequence*h.ValueHeads + h.of) * size
		if a.State.Valid() {
			copy(state, Values(a.State)[at:])
		}
		for t := range h.Positions {
			h.step(state, t)
			q, _ := unit(h.keys(h.q, t), h.Eps, h.scale())
			o := h.values(a.O, t)
			for c := range o {
				o[c] = 0
				for i, v := range q {
					o[c] += v * state[i*h.ValueWidth+c]
				}
			}
		}
		if a.State.Valid() {
			copy(Values(a.State)[at:][:size], state)
		}
	})
}

// gatedDeltaGrad takes the recurrence's gradient from the last position to the first.
func gatedDeltaGrad(op *tensorops.Op) {
	a := op.GatedDeltaGrad()
	for _, t := range []tensorops.Tensor{a.DQ, a.DK} {
		for n := range t.Rows() {
			clear(rowOf(t, n))
		}
	}
	deltaHeads(a.DeltaSizes, a.Q, a.K, a.V, a.Gates, func(h deltaHead) {
		state := make([]float64, h.KeyWidth*h.ValueWidth)
		var after, before, rest [][]float64 // S[t], S[t−1] times its decay, and n[t]
		for t := range h.Positions {
			n, decayed := h.step(state, t)
			after, before, rest = append(after, append([]float64(nil), state...)), append(before, decayed), append(rest, n)
		}
		ds := make([]float64, len(state))
		for t := h.Positions - 1; t >= 0; t-- {
			h.stepGrad(a, t, ds, after[t], before[t], rest[t])
		}
	})
}

// stepGrad takes the gradient ds of S[t] from what follows, stores or adds what position t has of each
// gradient, and leaves that of S[t−1].
func (h deltaHead) stepGrad(a tensorops.GatedDeltaGradArgs, t int, ds, after, before, rest []float64) {
	q, rq := unit(h.keys(h.q, t), h.Eps, h.scale())
	k, rk := unit(h.keys(h.k, t), h.Eps, 1)
	g, beta := h.gate(h.gates, t)
	dg, dbeta := h.gate(a.DGates, t)
	do, dv := h.values(a.DO, t), h.values(a.DV, t)
	dq, dk := make([]float64, h.KeyWidth), make([]float64, h.KeyWidth)
	for i := range q {
		for c, d := range do {
			dq[i] += after[i*h.ValueWidth+c] * d
			ds[i*h.ValueWidth+c] += q[i] * d
		}
	}
	*dg, *dbeta = 0, 0
	for c, n := range rest {
		var dn float64
		for i := range k {
			dk[i] += ds[i*h.ValueWidth+c] * *beta * n
			dn += ds[i*h.ValueWidth+c] * k[i]
		}
		*dbeta += dn * n
		dn *= *beta
		dv[c] = dn
		for i := range k {
			at := i*h.ValueWidth + c
			dk[i] -= before[at] * dn
			ds[at] -= k[i] * dn
			*dg += ds[at] * before[at]
		}
	}
	for i := range ds {
		ds[i] *= math.Exp(*g)
	}
	unitGrad(h.keys(a.DQ, t), dq, h.keys(h.q, t), rq, h.scale())
	unitGrad(h.keys(a.DK, t), dk, h.keys(h.k, t), rk, 1)
}
