package cpu

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// gateFunc is the loop of an activation. SiLU and the clamped SwiGLU have loops of their own.
func gateFunc(act tensorops.Activation) vec.GateFunc {
	switch act {
	case tensorops.TanhGELU:
		return vec.TanhGELU
	case tensorops.ExactGELU:
		return vec.ExactGELU
	case tensorops.ReLU2:
		return vec.ReLU2
	case tensorops.Sigmoid:
		return vec.Sigmoid
	}
	panic(fmt.Sprintf("cpu: no loop for %v", act))
}

// gateLoop stores what an activation of the gate makes of up.
func (x *exec) gateLoop(o tensorops.GateOpts, y, gate, up []float32) {
	switch k := x.dev.kernels.vec; o.Act {
	case tensorops.SiLU:
		k.SwiGLU(y, gate, up)
	case tensorops.ClampedSwiGLU:
		k.ClampedGate(y, gate, up, float32(o.Limit), float32(o.Alpha))
	default:
		k.Gate(gateFunc(o.Act), y, gate, up)
	}
}

// gateGradLoop stores the gradients of both.
func (x *exec) gateGradLoop(o tensorops.GateOpts, dgate, dup, dy, gate, up []float32) {
	switch k := x.dev.kernels.vec; o.Act {
	case tensorops.SiLU:
		k.SwiGLUGrad(dgate, dup, dy, gate, up)
	case tensorops.ClampedSwiGLU:
		k.ClampedGateGrad(dgate, dup, dy, gate, up, float32(o.Limit), float32(o.Alpha))
	default:
		k.GateGrad(gateFunc(o.Act), dgate, dup, dy, gate, up)
	}
}

func gate(x *exec, lo, hi int) {
	a := x.op.Gate()
	y, gate, up := x.values(0, a.Y), x.values(1, a.Gate), x.values(2, a.Up)
	parts(lo, hi, func(lo, hi int) {
		out := x.room(y, lo, hi)
		x.gateLoop(a.GateOpts, out, x.get(gate, lo, hi), x.get(up, lo, hi))
		x.put(y, lo, out)
	}, y, gate, up)
}

func gateGrad(x *exec, lo, hi int) {
	a := x.op.GateGrad()
	dgate, dup, dy := x.values(0, a.DGate), x.values(1, a.DUp), x.values(2, a.DY)
	gate, up := x.values(3, a.Gate), x.values(4, a.Up)
	parts(lo, hi, func(lo, hi int) {
		outGate, outUp := x.room(dgate, lo, hi), x.room(dup, lo, hi)
		x.gateGradLoop(a.GateOpts, outGate, outUp, x.get(dy, lo, hi), x.get(gate, lo, hi), x.get(up, lo, hi))
		x.put(dgate, lo, outGate)
		x.put(dup, lo, outUp)
	}, dgate, dup, dy, gate, up)
}

// inParts calls f for parts of the elements [lo, hi) that the first-level cache holds, with ones for an activation
// without a gate: its loop is that of a gate of ones.
func (x *exec) inParts(lo, hi int, f func(lo, hi int, ones []float32)) {
	if len(x.ones) == 0 {
		x.ones, x.unused = make([]float32, partLen), make([]float32, partLen)
		fillAll(x.ones, 1)
	}
	for ; lo < hi; lo += partLen {
		end := min(lo+partLen, hi)
		f(lo, end, x.ones[:end-lo])
	}
}

func act(x *exec, lo, hi int) {
	a := x.op.Act()
	y, in := x.values(0, a.Y), x.values(1, a.X)
	x.inParts(lo, hi, func(lo, hi int, ones []float32) {
		out := x.room(y, lo, hi)
		x.gateLoop(tensorops.GateOpts{Act: a.Act}, out, x.get(in, lo, hi), ones)
		x.put(y, lo, out)
	})
}

func actGrad(x *exec, lo, hi int) {
	a := x.op.ActGrad()
	dx, dy, in := x.values(0, a.DX), x.values(1, a.DY), x.values(2, a.X)
	x.inParts(lo, hi, func(lo, hi int, ones []float32) {
		out := x.room(dx, lo, hi)
		x.gateGradLoop(tensorops.GateOpts{Act: a.Act}, out, x.unused[:hi-lo], x.get(dy, lo, hi), x.get(in, lo, hi), ones)
		x.put(dx, lo, out)
	})
}

func softCap(x *exec, lo, hi int) {
	a := x.op.SoftCap()
	y, in := x.values(0, a.Y), x.values(1, a.X)
	parts(lo, hi, func(lo, hi int) {
		out := x.room(y, lo, hi)
		x.dev.kernels.vec.SoftCap(out, x.get(in, lo, hi), a.Limit)
		x.put(y, lo, out)
	}, y, in)
}

func softCapGrad(x *exec, lo, hi int) {
	a := x.op.SoftCapGrad()
	dx, dy, in := x.values(0, a.DX), x.values(1, a.DY), x.values(2, a.X)
	parts(lo, hi, func(lo, hi int) {
		out := x.room(dx, lo, hi)
		x.dev.kernels.vec.SoftCapGrad(out, x.get(dy, lo, hi), x.get(in, lo, hi), a.Limit)
		x.put(dx, lo, out)
	}, dx, dy, in)
}

func addScaled(x *exec, lo, hi int) { x.addScaled(x.op.AddScaled(), lo, hi) }

func (x *exec) addScaled(a tensorops.AddScaledArgs, lo, hi int) {
	y, in, skip := x.values(0, a.Y), x.values(1, a.X), x.values(2, a.Skip)
	parts(lo, hi, func(lo, hi int) {
		out := x.room(y, lo, hi)
		x.dev.kernels.vec.AddScaled(out, x.get(in, lo, hi), x.get(skip, lo, hi), float32(a.Factor))
		x.put(y, lo, out)
	}, y, in, skip)
}
