package tensorops

import "strconv"

// Activation is a function of single elements.
type Activation uint8

// The activations, with σ(x) = 1/(1 + e^−x) and Φ the standard normal distribution function.
const (
	SiLU          Activation = iota // x·σ(x)
	TanhGELU                        // x/2·(1 + tanh(√(2/π)(x + 0.044715x³)))
	ExactGELU                       // x·Φ(x)
	ReLU2                           // max(x, 0)² (So et al. 2021)
	Sigmoid                         // σ(x)
	ClampedSwiGLU                   // g·σ(Alpha·g)·(u + 1), g = min(gate, Limit), u = up within ±Limit; only as a gate (GPT-OSS)
	numActivations
)

var activations = [numActivations]string{"silu", "tanh_gelu", "exact_gelu", "relu2", "sigmoid", "clamped_swiglu"}

func (a Activation) String() string {
	if a >= numActivations {
		return "activation(" + strconv.Itoa(int(a)) + ")"
	}
	return activations[a]
}

// GateOpts says how a gate multiplies.
type GateOpts struct {
	Act          Activation
	Limit, Alpha float64 // of ClampedSwiGLU, above 0; 0 for the others
}

func (g GateOpts) legal() bool {
	if g.Act == ClampedSwiGLU {
		return g.Limit > 0 && g.Alpha > 0 && finite(g.Limit) && finite(g.Alpha)
	}
	return g.Act < numActivations && g.Limit == 0 && g.Alpha == 0
}

const needGate = needSame + ", the activation (size 0) is known, limit and alpha (numbers) are above 0 for a clamped SwiGLU and 0 for others"

// Gate records y = act(gate)·up, where ClampedSwiGLU changes up, too. With SiLU it records a
// SwiGLU. y may be gate or up.
func (l *List) Gate(y, gate, up Tensor, g GateOpts) {
	if g == (GateOpts{Act: SiLU}) {
		l.SwiGLU(y, gate, up)
		return
	}
	o := l.op(KindGate)
	GateArgs{y, gate, up, g}.Put(o)
	l.need(o, denseEither(y, gate, up) && sameLen(y, gate, up) && g.legal(), needGate)
}

// GateArgs are the operands of KindGate.
type GateArgs struct {
	Y, Gate, Up Tensor
	GateOpts
}

func (g GateOpts) put(o *Op) { o.I[0], o.F[0], o.F[1] = int(g.Act), g.Limit, g.Alpha }

func (o *Op) gate() GateOpts {
	return GateOpts{Act: Activation(o.I[0]), Limit: o.F[0], Alpha: o.F[1]}
}

// Put stores the operands.
func (a GateArgs) Put(o *Op) {
	o.operands(a.Y, a.Gate, a.Up)
	a.put(o)
}

// Gate reads the operands.
func (o *Op) Gate() GateArgs {
	return GateArgs{Y: o.T[0], Gate: o.T[1], Up: o.T[2], GateOpts: o.gate()}
}

// GateGrad records the gradients of both inputs. dup may be dy.
func (l *List) GateGrad(dgate, dup, dy, gate, up Tensor, g GateOpts) {
	if g == (GateOpts{Act: SiLU}) {
		l.SwiGLUGrad(dgate, dup, dy, gate, up)
		return
	}
	o := l.op(KindGateGrad)
	GateGradArgs{dgate, dup, dy, gate, up, g}.Put(o)
	l.need(o, denseEither(dgate, dup, dy, gate, up) && sameLen(dgate, dup, dy, gate, up) && g.legal(), needGate)
}

// GateGradArgs are the operands of KindGateGrad.
type GateGradArgs struct {
	DGate, DUp, DY, Gate, Up Tensor
	GateOpts
}

// Put stores the operands.
func (a GateGradArgs) Put(o *Op) {
	o.operands(a.DGate, a.DUp, a.DY, a.Gate, a.Up)
	a.put(o)
}

// GateGrad reads the operands.
func (o *Op) GateGrad() GateGradArgs {
	return GateGradArgs{DGate: o.T[0], DUp: o.T[1], DY: o.T[2], Gate: o.T[3], Up: o.T[4], GateOpts: o.gate()}
}

const needAct = needSame + ", and the activation (size 0) has a form without a gate"

// Act records y = act(x). With TanhGELU it records a GELU. y may be x.
func (l *List) Act(y, x Tensor, act Activation) {
	if act == TanhGELU {
		l.GELU(y, x)
		return
	}
	o := l.op(KindAct)
	ActArgs{y, x, act}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x) && act < ClampedSwiGLU, needAct)
}

// ActArgs are the operands of KindAct.
type ActArgs struct {
	Y, X Tensor
	Act  Activation
}

// Put stores the operands.
func (a ActArgs) Put(o *Op) {
	o.operands(a.Y, a.X)
	o.I[0] = int(a.Act)
}

// Act reads the operands.
func (o *Op) Act() ActArgs { return ActArgs{Y: o.T[0], X: o.T[1], Act: Activation(o.I[0])} }

// ActGrad records dx = dy·act′(x); dx may be dy.
func (l *List) ActGrad(dx, dy, x Tensor, act Activation) {
	if act == TanhGELU {
		l.GELUGrad(dx, dy, x)
		return
	}
	o := l.op(KindActGrad)
	ActGradArgs{dx, dy, x, act}.Put(o)
	l.need(o, denseEither(dx, dy, x) && sameLen(dx, dy, x) && act < ClampedSwiGLU, needAct)
}

// ActGradArgs are the operands of KindActGrad.
type ActGradArgs struct {
	DX, DY, X Tensor
	Act       Activation
}

// Put stores the operands.
func (a ActGradArgs) Put(o *Op) {
	o.operands(a.DX, a.DY, a.X)
	o.I[0] = int(a.Act)
}

// ActGrad reads the operands.
func (o *Op) ActGrad() ActGradArgs {
	return ActGradArgs{DX: o.T[0], DY: o.T[1], X: o.T[2], Act: Activation(o.I[0])}
}

const needCap = needSame + ", and the cap (number 0) is finite and above 0"

// SoftCap records y = limit·tanh(x/limit) (Gemma 2): it stays within ±limit. y may be x.
func (l *List) SoftCap(y, x Tensor, limit float64) {
	o := l.op(KindSoftCap)
	SoftCapArgs{y, x, limit}.Put(o)
	l.need(o, denseEither(y, x) && sameLen(y, x) && limit > 0 && finite(limit), needCap)
}

// SoftCapArgs are the operands of KindSoftCap.
type SoftCapArgs struct {
	Y, X  Tensor
	Limit float64
}

// Put stores the operands.
func (a SoftCapArgs) Put(o *Op) {
	o.operands(a.Y, a.X)
	o.F[0] = a.Limit
}

// SoftCap reads the operands.
func (o *Op) SoftCap() SoftCapArgs { return SoftCapArgs{Y: o.T[0], X: o.T[1], Limit: o.F[0]} }

// SoftCapGrad records dx = dy·(1 − tanh²(x/limit)); dx may be dy.
func (l *List) SoftCapGrad(dx, dy, x Tensor, limit float64) {
	o := l.op(KindSoftCapGrad)
	SoftCapGradArgs{dx, dy, x, limit}.Put(o)
	l.need(o, denseEither(dx, dy, x) && sameLen(dx, dy, x) && limit > 0 && finite(limit), needCap)
}

// SoftCapGradArgs are the operands of KindSoftCapGrad.
type SoftCapGradArgs struct {
	DX, DY, X Tensor
	Limit     float64
}

// Put stores the operands.
func (a SoftCapGradArgs) Put(o *Op) {
	o.operands(a.DX, a.DY, a.X)
	o.F[0] = a.Limit
}

// SoftCapGrad reads the operands.
func (o *Op) SoftCapGrad() SoftCapGradArgs {
	return SoftCapGradArgs{DX: o.T[0], DY: o.T[1], X: o.T[2], Limit: o.F[0]}
}
