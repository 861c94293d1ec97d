package vec

import "math"

// The numbers of the clamped gate in tests.
const (
	testLimit = 1.75
	testAlpha = 1.625
)

// gateOf is the loop of a gate's function.
func gateOf(name string, f GateFunc, ulps float64, of func(x float64) (v, slope float64)) loop {
	return loop{name, 3, 1, ulps, true,
		plain(func(k *Kernels, t [][]float32) { k.Gate(f, t[0], t[1], t[2]) }),
		over(func(e []float64) float64 { v, _ := of(e[1]); return v * e[2] })}
}

// gateGradOf is the loop of its gradient.
func gateGradOf(name string, f GateFunc, of func(x float64) (v, slope float64)) loop {
	return loop{name, 5, 2, 8, true,
		plain(func(k *Kernels, t [][]float32) { k.GateGrad(f, t[0], t[1], t[2], t[3], t[4]) }),
		func(t [][]float64) []float64 {
			for i, dy := range t[2] {
				v, slope := of(t[3][i])
				t[0][i], t[1][i] = dy*t[4][i]*slope, dy*v
			}
			return nil
		}}
}

func tanhGELU64(x float64) (v, slope float64) {
	a := 2 * math.Sqrt(2/math.Pi)
	s := sigmoid64(a * (x + 0.044715*x*x*x))
	return x * s, s + x*s*(1-s)*a*(1+3*0.044715*x*x)
}

func exactGELU64(x float64) (v, slope float64) {
	p := math.Erfc(-x/math.Sqrt2) / 2
	return x * p, p + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
}

func relu2To64(x float64) (v, slope float64) {
	x = max(x, 0)
	return x * x, 2 * x
}

func logistic64(x float64) (v, slope float64) {
	s := sigmoid64(x)
	return s, s * (1 - s)
}

func clamped64(gate, up float64) (y, byGate, byUp float64) {
	g, u := min(gate, testLimit), min(max(up, -testLimit), testLimit)
	s := sigmoid64(testAlpha * g)
	y, byGate, byUp = g*s*(u+1), s*(1+testAlpha*g*(1-s))*(u+1), g*s
	if gate > testLimit {
		byGate = 0
	}
	if math.Abs(up) > testLimit {
		byUp = 0
	}
	return y, byGate, byUp
}
