package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// routeCount: a count is short.
func (x *exec) routeCount() error {
	a := x.op.RouteCount()
	sums, width, runs := f32(a.Counts), a.Counts.Cols(), a.Counts.Rows()
	counts := routeCounts{x: x, experts: i32(a.Experts), width: width, of: a.Experts.Rows() / runs * a.Experts.Cols(), run: -1}
	for run := range runs {
		for e, n := range counts.ofRun(run) {
			sums[run*width+e] += float32(n)
		}
	}
	return nil
}

func (x *exec) routeBias() error {
	a := x.op.RouteBias()
	bias, counts := f32(a.Bias), f32(a.Counts)
	sum := 0.0
	for _, c := range counts {
		sum += float64(c)
	}
	for e, c := range counts {
		switch mean := sum / float64(len(counts)); {
		case float64(c) < mean:
			bias[e] = float32(float64(bias[e]) + a.Rate)
		case float64(c) > mean:
			bias[e] = float32(float64(bias[e]) - a.Rate)
		}
	}
	return nil
}

func sigmoid(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }

func rowGate(x *exec, lo, hi int) {
	a := x.op.RowGate()
	y, in, gate, c := x.values(0, a.Y), x.values(1, a.X), f32(a.Gate), a.X.Cols()
	for n := lo; n < hi; n++ {
		out := x.room(y, n*c, (n+1)*c)
		x.dev.kernels.vec.Scaled(out, x.get(in, n*c, (n+1)*c), float32(sigmoid(gate[n])))
		x.put(y, n*c, out)
	}
}

func rowGateGrad(x *exec, lo, hi int) {
	a := x.op.RowGateGrad()
	dx, dy, in, c := x.values(0, a.DX), x.values(1, a.DY), x.values(2, a.X), a.X.Cols()
	dgate, gate := f32(a.DGate), f32(a.Gate)
	for n := lo; n < hi; n++ {
		s, d := sigmoid(gate[n]), x.get(dy, n*c, (n+1)*c)
		dgate[n] = float32(s * (1 - s) * float64(x.rowDot(x.get(in, n*c, (n+1)*c), d)))
		out := x.room(dx, n*c, (n+1)*c)
		x.dev.kernels.vec.Scaled(out, d, float32(s))
		x.put(dx, n*c, out)
	}
}

// jitter works on as many elements at a time as dropout.
func jitter(x *exec, lo, hi int) {
	a := x.op.Dropout()
	y, in, skip := x.values(0, a.Y), x.values(1, a.X), x.values(2, a.Skip)
	for at := lo; at < hi; at += dropBlock {
		end := min(at+dropBlock, hi)
		out := x.room(y, at, end)
		vec.Jitter(out, x.get(in, at, end), x.get(skip, at, end), a.Mask.Key, a.Mask.Step, a.Mask.First+uint64(at), a.Mask.P)
		x.put(y, at, out)
	}
}
