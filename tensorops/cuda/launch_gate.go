package cuda

import "github.com/troupe-ml/troupe/tensorops"

func gate(x *exec, o *tensorops.Op) error {
	a := o.Gate()
	return startGate(x, a.Y, a.Gate, a.Up, a.GateOpts)
}

func act(x *exec, o *tensorops.Op) error {
	a := o.Act()
	return startGate(x, a.Y, a.X, tensorops.Tensor{}, tensorops.GateOpts{Act: a.Act})
}

// startGate starts y = act(gate)·up, or y = act(gate) without up.
func startGate(x *exec, y, gate, up tensorops.Tensor, g tensorops.GateOpts) error {
	return eightwise(x, "gate", y.Len(), &struct {
		y, gate, up     uint64
		n               int64
		limit, alpha    float32
		act             int32
		aligned, halves uint32
		pad             uint32
	}{y: address(y), gate: address(gate), up: address(up), n: int64(y.Len()), limit: float32(g.Limit), alpha: float32(g.Alpha),
		act:     int32(g.Act),
		aligned: alignedEights(y, gate, up), halves: halves(y, gate, up)})
}

func gateGrad(x *exec, o *tensorops.Op) error {
	a := o.GateGrad()
	return startGateGrad(x, a)
}

func actGrad(x *exec, o *tensorops.Op) error {
	a := o.ActGrad()
	return startGateGrad(x, tensorops.GateGradArgs{DGate: a.DX, DY: a.DY, Gate: a.X, GateOpts: tensorops.GateOpts{Act: a.Act}})
}

// startGateGrad starts the gradients of a gate; without up there is one.
func startGateGrad(x *exec, a tensorops.GateGradArgs) error {
	n := a.DGate.Len()
	return eightwise(x, "gate_grad", n, &struct {
		dgate, dup, dy, gate, up uint64
		n                        int64
		limit, alpha             float32
		act                      int32
		aligned, halves          uint32
		pad                      uint32
	}{dgate: address(a.DGate), dup: address(a.DUp), dy: address(a.DY), gate: address(a.Gate), up: address(a.Up), n: int64(n),
		limit: float32(a.Limit), alpha: float32(a.Alpha), act: int32(a.Act),
		aligned: alignedEights(a.DGate, a.DUp, a.DY, a.Gate, a.Up), halves: halves(a.DGate, a.DUp, a.DY, a.Gate, a.Up)})
}

func softCap(x *exec, o *tensorops.Op) error {
	a := o.SoftCap()
	return startCap(x, a.Y, tensorops.Tensor{}, a.X, a.Limit)
}

func softCapGrad(x *exec, o *tensorops.Op) error {
	a := o.SoftCapGrad()
	return startCap(x, a.DX, a.DY, a.X, a.Limit)
}

// startCap starts y = limit·tanh(x/limit), or, with dy, its gradient.
func startCap(x *exec, y, dy, in tensorops.Tensor, limit float64) error {
	return eightwise(x, "soft_cap", y.Len(), &struct {
		y, dy, x        uint64
		n               int64
		limit, inverse  float32
		aligned, halves uint32
	}{y: address(y), dy: address(dy), x: address(in), n: int64(y.Len()), limit: float32(limit), inverse: float32(1 / limit),
		aligned: alignedEights(y, dy, in), halves: halves(y, dy, in)})
}

func addScaled(x *exec, o *tensorops.Op) error {
	a := o.AddScaled()
	return eightwise(x, "add_scaled", a.Y.Len(), &struct {
		y, x, skip      uint64
		n               int64
		factor          float32
		aligned, halves uint32
		pad             uint32
	}{y: address(a.Y), x: address(a.X), skip: address(a.Skip), n: int64(a.Y.Len()), factor: float32(a.Factor),
		aligned: alignedEights(a.Y, a.X, a.Skip), halves: halves(a.Y, a.X, a.Skip)})
}
