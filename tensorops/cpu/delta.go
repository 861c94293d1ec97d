package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/delta"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// deltaKernel is how the path computes the gated delta rule: in float32, whatever the types in memory.
func (x *exec) deltaKernel() *delta.Kernel {
	return &delta.Kernel{Gemm: x.dev.kernels.attn.Gemm, Vec: x.dev.kernels.vec}
}

func deltaShape(s tensorops.DeltaSizes) *delta.Shape {
	return &delta.Shape{Positions: s.Positions, KeyWidth: s.KeyWidth, ValueWidth: s.ValueWidth, Eps: s.Eps}
}

// gateColumns are the g and the β of head h in sequence b, and how far those of positions lie apart.
func gateColumns(gates tensorops.Tensor, s tensorops.DeltaSizes, b, h int) (g, beta []float32, stride int) {
	all := f32(gates)[b*s.Positions*2*s.ValueHeads:]
	return all[h:], all[s.ValueHeads+h:], 2 * s.ValueHeads
}

// gatedDelta takes a range of (sequence, head of values).
func gatedDelta(x *exec, lo, hi int) {
	a := x.op.GatedDelta()
	kernel, s := x.deltaKernel(), deltaShape(a.DeltaSizes)
	if a.Positions == 0 {
		return
	}
	for bh := lo; bh < hi; bh++ {
		b, h := bh/a.ValueHeads, bh%a.ValueHeads
		keys := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h/a.Group(), a.Positions, a.KeyWidth) }
		values := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h, a.Positions, a.ValueWidth) }
		head := delta.Head{V: values(a.V), O: values(a.O)}
		head.Gates, head.Betas, head.Stride = gateColumns(a.Gates, a.DeltaSizes, b, h)
		if a.State.Valid() {
			n := a.KeyWidth * a.ValueWidth
			head.State = f32(a.State)[bh*n:][:n]
		}
		kernel.Forward(&x.delta, s, &delta.Keys{Q: keys(a.Q), K: keys(a.K)}, &head)
	}
}

// gatedDeltaGrad takes a range of (sequence, head of keys): the heads of values that read a head of keys
// add to its gradients in ascending order.
func gatedDeltaGrad(x *exec, lo, hi int) {
	a := x.op.GatedDeltaGrad()
	kernel, s := x.deltaKernel(), deltaShape(a.DeltaSizes)
	if a.Positions == 0 {
		return
	}
	heads := make([]delta.Head, a.Group())
	for bk := lo; bk < hi; bk++ {
		b, hk := bk/a.KeyHeads, bk%a.KeyHeads
		keys := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, hk, a.Positions, a.KeyWidth) }
		for i := range heads {
			h := hk*a.Group() + i
			values := func(t tensorops.Tensor) gemm.Matrix { return headOf(t, b, h, a.Positions, a.ValueWidth) }
			heads[i] = delta.Head{V: values(a.V), DO: values(a.DO), DV: values(a.DV)}
			heads[i].Gates, heads[i].Betas, heads[i].Stride = gateColumns(a.Gates, a.DeltaSizes, b, h)
			heads[i].DGates, heads[i].DBetas, _ = gateColumns(a.DGates, a.DeltaSizes, b, h)
		}
		kernel.Backward(&x.delta, s, &delta.Keys{Q: keys(a.Q), K: keys(a.K), DQ: keys(a.DQ), DK: keys(a.DK)}, heads)
	}
}

// deltaGates takes a range of rows.
func deltaGates(x *exec, lo, hi int) {
	a := x.op.DeltaGates()
	in, b, heads := x.values(0, a.A), x.values(1, a.B), a.A.Cols()
	decay, starts := decays(a.ALog), startsOf(a.Starts)
	for n := lo; n < hi; n++ {
		gates := f32(a.Gates)[n*2*heads:][:2*heads]
		for h, v := range x.get(in, n*heads, (n+1)*heads) {
			gates[h] = float32(-decay[h] * softplus(float64(v)+float64(f32(a.DTBias)[h])))
		}
		if starts != nil && a.Resets(n, a.A.Rows()/a.Batch, starts.at(n)) {
			for h := range heads {
				gates[h] = tensorops.DeltaReset
			}
		}
		for h, v := range x.get(b, n*heads, (n+1)*heads) {
			gates[heads+h] = float32(logistic(float64(v)))
		}
	}
}

// decays are e^aLog.
func decays(aLog tensorops.Tensor) []float64 {
	all := make([]float64, aLog.Len())
	for h, v := range f32(aLog) {
		all[h] = math.Exp(float64(v))
	}
	return all
}

// softplus is log(1 + e^x).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// logistic is σ(x).
func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// deltaGatesGrad takes a range of rows.
func deltaGatesGrad(x *exec, lo, hi int) {
	a := x.op.DeltaGatesGrad()
	in, da, db, heads := x.values(0, a.A), x.values(1, a.DA), x.values(2, a.DB), a.A.Cols()
	decay := decays(a.ALog)
	for n := lo; n < hi; n++ {
		i, j := n*heads, (n+1)*heads
		gates, d := f32(a.Gates)[2*i:2*j], f32(a.DGates)[2*i:2*j]
		out := x.room(da, i, j)
		for h, v := range x.get(in, i, j) {
			if out[h] = 0; gates[h] > tensorops.DeltaReset {
				out[h] = float32(-float64(d[h]) * decay[h] * logistic(float64(v)+float64(f32(a.DTBias)[h])))
			}
		}
		x.put(da, i, out)
		out = x.room(db, i, j)
		for h := range out {
			beta := float64(gates[heads+h])
			out[h] = float32(float64(d[heads+h]) * beta * (1 - beta))
		}
		x.put(db, i, out)
	}
}

func (x *exec) deltaGatesWeightGrad() error {
	in := x.op.DeltaGatesWeightGrad().A
	return x.sumRows(in.Rows(), in.Cols(), 2*in.Cols(), deltaGatesWeightBlocks, deltaGatesWeightTotals)
}

func deltaGatesWeightBlocks(x *exec, lo, hi int) {
	a := x.op.DeltaGatesWeightGrad()
	in, heads := x.values(0, a.A), a.A.Cols()
	decay := decays(a.ALog)
	x.sumBlocks(lo, hi, a.A.Rows(), 2*heads, func(sums []float32, r0, r1 int) {
		for n := r0; n < r1; n++ {
			gates, d := f32(a.Gates)[n*2*heads:][:2*heads], f32(a.DGates)[n*2*heads:][:2*heads]
			for h, v := range x.get(in, n*heads, (n+1)*heads) {
				if gates[h] <= tensorops.DeltaReset {
					continue
				}
				sums[h] += float32(d[h] * gates[h])
				sums[heads+h] -= float32(float64(d[h]) * decay[h] * logistic(float64(v)+float64(f32(a.DTBias)[h])))
			}
		}
	})
}

func deltaGatesWeightTotals(x *exec, lo, hi int) {
	a := x.op.DeltaGatesWeightGrad()
	heads := a.A.Cols()
	x.addSums(f32(a.DALog), 0, 2*heads, lo, hi)
	x.addSums(f32(a.DDTBias), heads, 2*heads, lo, hi)
}
