package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// loop is one loop over n elements, for the tests that all of them share.
type loop struct {
	name string
	in   int     // float32 operands
	out  int     // how many of them, the first ones, are changed
	ulps float64 // the error allowed, in ulps of the largest magnitude in sight
	each bool    // an element depends on the same elements of the operands alone

	// run changes the operands and returns what the loop returns.
	run func(k *Kernels, t [][]float32) []float64
	// want is the same in float64.
	want func(t [][]float64) []float64
}

const (
	testScale = 0.37
	testTop   = 1.5
)

func sigmoid64(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func gelu64(x float64) float64 {
	return x * sigmoid64(2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))
}

// over replaces the first operand, element by element.
func over(f func(e []float64) float64) func(t [][]float64) []float64 {
	return func(t [][]float64) []float64 {
		for i := range t[0] {
			e := make([]float64, len(t))
			for j := range t {
				e[j] = t[j][i]
			}
			t[0][i] = f(e)
		}
		return nil
	}
}

// plain wraps a loop that returns nothing.
func plain(run func(k *Kernels, t [][]float32)) func(k *Kernels, t [][]float32) []float64 {
	return func(k *Kernels, t [][]float32) []float64 {
		run(k, t)
		return nil
	}
}

func sum64(n int, f func(i int) float64) float64 {
	var sum float64
	for i := range n {
		sum += f(i)
	}
	return sum
}

// masks are the dropout masks of a test, made from an operand's signs.
func masks(x []float32) []uint32 {
	keep := make([]uint32, len(x))
	for i, v := range x {
		if v > 0 {
			keep[i] = math.MaxUint32
		}
	}
	return keep
}

func kept(v, mask float64) float64 {
	if mask > 0 {
		return v
	}
	return 0
}

func sumLoop(operands int, past bool) loop {
	name := fmt.Sprint("sum of ", operands)
	if past {
		name += " past the caches"
	}
	return loop{name, 1 + operands, 1, float64(operands), true,
		plain(func(k *Kernels, t [][]float32) { k.Sum(t[0], past, t[1:]...) }),
		over(func(e []float64) float64 { return sum64(operands, func(i int) float64 { return e[1+i] }) })}
}

var loops = []loop{
	{"exp", 2, 1, 2, true,
		plain(func(k *Kernels, t [][]float32) { k.Exp(t[0], t[1]) }),
		over(func(e []float64) float64 { return math.Exp(e[1]) })},
	{"tanh", 2, 1, 2, true,
		plain(func(k *Kernels, t [][]float32) { k.Tanh(t[0], t[1]) }),
		over(func(e []float64) float64 { return math.Tanh(e[1]) })},
	{"gelu", 2, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.GELU(t[0], t[1]) }),
		over(func(e []float64) float64 { return gelu64(e[1]) })},
	{"gelu grad", 3, 1, 8, true,
		plain(func(k *Kernels, t [][]float32) { k.GELUGrad(t[0], t[1], t[2]) }),
		over(func(e []float64) float64 {
			x, a := e[2], 2*math.Sqrt(2/math.Pi)
			s := sigmoid64(a * (x + 0.044715*x*x*x))
			return e[1] * (s + x*s*(1-s)*a*(1+3*0.044715*x*x))
		})},
	{"swiglu", 3, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.SwiGLU(t[0], t[1], t[2]) }),
		over(func(e []float64) float64 { return e[1] * sigmoid64(e[1]) * e[2] })},
	{"swiglu grad", 5, 2, 8, true,
		plain(func(k *Kernels, t [][]float32) { k.SwiGLUGrad(t[0], t[1], t[2], t[3], t[4]) }),
		func(t [][]float64) []float64 {
			for i := range t[0] {
				dy, g, up := t[2][i], t[3][i], t[4][i]
				s := sigmoid64(g)
				t[0][i], t[1][i] = dy*up*s*(1+g*(1-s)), dy*g*s
			}
			return nil
		}},
	gateOf("gate by the tanh form of GELU", TanhGELU, 4, tanhGELU64),
	gateGradOf("gate by the tanh form of GELU, gradient", TanhGELU, tanhGELU64),
	gateOf("gate by GELU", ExactGELU, 4, exactGELU64),
	gateGradOf("gate by GELU, gradient", ExactGELU, exactGELU64),
	gateOf("gate by the squared ReLU", ReLU2, 2, relu2To64),
	gateGradOf("gate by the squared ReLU, gradient", ReLU2, relu2To64),
	gateOf("gate by the logistic function", Sigmoid, 4, logistic64),
	gateGradOf("gate by the logistic function, gradient", Sigmoid, logistic64),
	{"clamped gate", 3, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.ClampedGate(t[0], t[1], t[2], testLimit, testAlpha) }),
		over(func(e []float64) float64 { y, _, _ := clamped64(e[1], e[2]); return y })},
	{"clamped gate, gradient", 5, 2, 8, true,
		plain(func(k *Kernels, t [][]float32) { k.ClampedGateGrad(t[0], t[1], t[2], t[3], t[4], testLimit, testAlpha) }),
		func(t [][]float64) []float64 {
			for i, dy := range t[2] {
				_, byGate, byUp := clamped64(t[3][i], t[4][i])
				t[0][i], t[1][i] = dy*byGate, dy*byUp
			}
			return nil
		}},
	{"soft cap", 2, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.SoftCap(t[0], t[1], 3) }),
		over(func(e []float64) float64 { return 3 * math.Tanh(e[1]/3) })},
	{"soft cap, gradient", 3, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.SoftCapGrad(t[0], t[1], t[2], 3) }),
		over(func(e []float64) float64 { t := math.Tanh(e[2] / 3); return e[1] * (1 - t*t) })},
	{"add scaled", 3, 1, 2, true,
		plain(func(k *Kernels, t [][]float32) { k.AddScaled(t[0], t[1], t[2], testScale) }),
		over(func(e []float64) float64 { return e[2] + testScale*e[1] })},
	{"add", 3, 1, 1, true,
		plain(func(k *Kernels, t [][]float32) { k.Add(t[0], t[1], t[2]) }),
		over(func(e []float64) float64 { return e[1] + e[2] })},
	sumLoop(2, false), sumLoop(3, false), sumLoop(4, false), sumLoop(2, true), sumLoop(3, true), sumLoop(4, true),
	{"max", 1, 0, 0, false,
		func(k *Kernels, t [][]float32) []float64 { return []float64{float64(k.Max(t[0]))} },
		func(t [][]float64) []float64 { return []float64{slices.Max(append(t[0], math.Inf(-1)))} }},
	{"sum exp", 1, 0, 4, false,
		func(k *Kernels, t [][]float32) []float64 { return []float64{k.SumExp(t[0], testTop)} },
		func(t [][]float64) []float64 {
			return []float64{sum64(len(t[0]), func(i int) float64 { return math.Exp(t[0][i] - testTop) })}
		}},
	{"cross entropy grad", 2, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.CrossEntropyGrad(t[0], t[1], testTop+1e-9, testScale) }),
		over(func(e []float64) float64 { return testScale * math.Exp(e[1]-testTop-1e-9) })},
	{"layer norm", 4, 1, 4, false,
		func(k *Kernels, t [][]float32) []float64 {
			if len(t[0]) == 0 {
				return nil
			}
			mean, rstd := k.LayerNorm(t[0], t[1], t[2], t[3], 1e-5)
			return []float64{float64(mean), float64(rstd)}
		},
		func(t [][]float64) []float64 { return layerNorm64(t[0], t[1], t[2], t[3]) }},
	{"layer norm without beta", 3, 1, 4, false,
		func(k *Kernels, t [][]float32) []float64 {
			if len(t[0]) == 0 {
				return nil
			}
			mean, rstd := k.LayerNorm(t[0], t[1], t[2], nil, 1e-5)
			return []float64{float64(mean), float64(rstd)}
		},
		func(t [][]float64) []float64 { return layerNorm64(t[0], t[1], t[2], make([]float64, len(t[0]))) }},
	{"rms norm", 3, 1, 4, false,
		func(k *Kernels, t [][]float32) []float64 {
			if len(t[0]) == 0 {
				return nil
			}
			return []float64{float64(k.RMSNorm(t[0], t[1], t[2], 1e-5))}
		},
		func(t [][]float64) []float64 {
			n := len(t[0])
			if n == 0 {
				return nil
			}
			rstd := 1 / math.Sqrt(sum64(n, func(i int) float64 { return t[1][i] * t[1][i] })/float64(n)+1e-5)
			for i := range n {
				t[0][i] = t[1][i] * rstd * t[2][i]
			}
			return []float64{rstd}
		}},
	{"layer norm grad", 5, 1, 8, false,
		plain(func(k *Kernels, t [][]float32) { k.LayerNormGrad(t[0], t[1], t[2], t[3], t[4], 0.125, 0.75) }),
		func(t [][]float64) []float64 { return normGrad64(t[0], t[1], t[2], t[3], t[4], 0.125, 0.75, true) }},
	{"rms norm grad", 5, 1, 8, false,
		plain(func(k *Kernels, t [][]float32) { k.RMSNormGrad(t[0], t[1], t[2], t[3], t[4], 0.75) }),
		func(t [][]float64) []float64 { return normGrad64(t[0], t[1], t[2], t[3], t[4], 0, 0.75, false) }},
	{"rms norm grad without skip", 4, 1, 8, false,
		plain(func(k *Kernels, t [][]float32) { k.RMSNormGrad(t[0], t[1], t[2], t[3], nil, 0.75) }),
		func(t [][]float64) []float64 {
			return normGrad64(t[0], t[1], t[2], t[3], make([]float64, len(t[0])), 0, 0.75, false)
		}},
	{"squares", 1, 0, 1e-6, false,
		func(k *Kernels, t [][]float32) []float64 { return []float64{k.Squares(t[0])} },
		func(t [][]float64) []float64 {
			return []float64{sum64(len(t[0]), func(i int) float64 { return t[0][i] * t[0][i] })}
		}},
	{"drop", 3, 1, 1, true,
		plain(func(k *Kernels, t [][]float32) { k.Drop(t[0], t[1], masks(t[2]), nil, testScale) }),
		over(func(e []float64) float64 { return kept(e[1], e[2]) * testScale })},
	{"drop and add", 4, 1, 2, true,
		plain(func(k *Kernels, t [][]float32) { k.Drop(t[0], t[1], masks(t[2]), t[3], testScale) }),
		over(func(e []float64) float64 { return kept(e[1], e[2])*testScale + e[3] })},
	{"adamw", 4, 3, 8, true,
		plain(func(k *Kernels, t [][]float32) {
			for i, v := range t[2] {
				t[2][i] = v * v
			}
			k.AdamW(t[0], t[1], t[2], t[3], testAdamW)
		}),
		func(t [][]float64) []float64 {
			a := testAdamW
			for i, g := range t[3] {
				v := float64(float32(t[2][i] * t[2][i]))
				g *= a.Scale
				t[1][i] = a.Beta1*t[1][i] + (1-a.Beta1)*g
				t[2][i] = a.Beta2*v + (1-a.Beta2)*g*g
				t[0][i] = a.Keep*t[0][i] - a.Rate*t[1][i]/(math.Sqrt(t[2][i])*a.Root+a.Eps)
			}
			return nil
		}},
	{"sgd", 2, 1, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.SGD(t[0], nil, t[1], 0.1, 0, 0.01, testScale) }),
		over(func(e []float64) float64 { return e[0] - 0.1*(testScale*e[1]+0.01*e[0]) })},
	{"sgd with momentum", 3, 2, 4, true,
		plain(func(k *Kernels, t [][]float32) { k.SGD(t[0], t[1], t[2], 0.1, 0.9, 0.01, testScale) }),
		func(t [][]float64) []float64 {
			for i, g := range t[2] {
				t[1][i] = 0.9*t[1][i] + testScale*g + 0.01*t[0][i]
				t[0][i] -= 0.1 * t[1][i]
			}
			return nil
		}},
	{"round to bfloat16", 2, 1, 1 << 15, true,
		plain(func(k *Kernels, t [][]float32) { k.RoundBF16(t[0], t[1]) }),
		over(func(e []float64) float64 { return e[1] })},
	{"bfloat16 and back", 2, 1, 1 << 15, true,
		plain(func(k *Kernels, t [][]float32) {
			half := make([]uint16, len(t[0]))
			k.ToBF16(half, t[1])
			k.FromBF16(t[0], half)
		}),
		over(func(e []float64) float64 { return e[1] })},
}

var testAdamW = AdamW{Beta1: 0.9, Beta2: 0.99, Keep: 0.999, Rate: 0.01, Root: 1.25, Eps: 1e-3, Scale: testScale}

func layerNorm64(y, x, gamma, beta []float64) []float64 {
	n := len(y)
	if n == 0 {
		return nil
	}
	mean := sum64(n, func(i int) float64 { return x[i] }) / float64(n)
	rstd := 1 / math.Sqrt(sum64(n, func(i int) float64 { return (x[i] - mean) * (x[i] - mean) })/float64(n)+1e-5)
	for i := range n {
		y[i] = (x[i]-mean)*rstd*gamma[i] + beta[i]
	}
	return []float64{mean, rstd}
}

func normGrad64(dx, dy, x, gamma, skip []float64, mean, rstd float64, layer bool) []float64 {
	n := len(dx)
	a := sum64(n, func(i int) float64 { return dy[i] * gamma[i] }) / float64(n)
	b := sum64(n, func(i int) float64 { return dy[i] * gamma[i] * (x[i] - mean) * rstd }) / float64(n)
	if !layer {
		a = 0
	}
	for i := range n {
		dx[i] = rstd*(dy[i]*gamma[i]-a-(x[i]-mean)*rstd*b) + skip[i]
	}
	return nil
}

// operands makes the operands of a loop, each at another misalignment and
// between numbers that must stay.
func (l *loop) operands(r *rand.Rand, n int) (memory, t [][]float32) {
	outlier := 1 + r.IntN(max(1, l.in-1))
	for j := range l.in {
		m := make([]float32, n+2*margin)
		for i := range m {
			m[i] = float32(2 * r.NormFloat64())
			if !l.each { // two numbers that happen to be close make any norm imprecise
				m[i] = m[i]/4 + float32(i%2*4)
			}
		}
		if l.each && j == outlier && n > 3 {
			m[margin+r.IntN(n-3)] = float32(160*r.Float64() - 80) // where functions saturate
		}
		at := margin - j%3 - 1
		memory, t = append(memory, m), append(t, m[at:at+n:at+n])
	}
	return memory, t
}

const margin = 40

// check runs a loop on n random elements and compares it with float64.
func (l *loop) check(k *Kernels, seed uint64, n int) error {
	memory, t := l.operands(rand.New(rand.NewPCG(seed, uint64(n))), n)
	var before, want [][]float64
	for j := range t {
		before, want = append(before, widen(memory[j])), append(want, widen(t[j]))
	}
	got, results := l.run(k, t), l.want(want)
	for j, v := range results {
		if e := math.Abs(got[j] - v); e > l.ulps*math.Abs(v)/(1<<23) {
			return fmt.Errorf("%d elements: result %d is %g, want %g", n, j, got[j], v)
		}
	}
	scale := 1.0 // of what is multiplied and added
	for _, m := range before {
		for _, v := range m {
			scale = max(scale, math.Abs(v))
		}
	}
	for j := range t {
		at := margin - j%3 - 1
		for i, v := range memory[j] {
			inside := i >= at && i < at+n
			if (!inside || j >= l.out) && float64(v) != before[j][i] {
				return fmt.Errorf("%d elements: operand %d changed at %d from %g to %g", n, j, i-at, before[j][i], v)
			}
		}
		if j >= l.out {
			continue
		}
		for _, v := range want[j] {
			scale = max(scale, math.Abs(v))
		}
		for i, v := range want[j] {
			if e := math.Abs(float64(t[j][i]) - v); !(e <= l.ulps*scale/(1<<23)) {
				return fmt.Errorf("%d elements: operand %d is %g at %d, want %g", n, j, t[j][i], i, v)
			}
		}
	}
	return nil
}

func widen(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// lengths are around the sizes of vectors and of blocks.
func lengths() []int {
	var ns []int
	for n := range 71 {
		ns = append(ns, n)
	}
	return append(ns, 255, 256, 257, 1000)
}

func onPaths(t *testing.T, test func(t *testing.T, k *Kernels)) {
	for _, k := range Available() {
		t.Run(k.Name, func(t *testing.T) { test(t, k) })
	}
}

func TestAgainstFloat64(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		for _, l := range loops {
			for _, n := range lengths() {
				if err := l.check(k, 1, n); err != nil {
					t.Errorf("%s: %v", l.name, err)
					break
				}
			}
		}
	})
}

func FuzzLengths(f *testing.F) {
	f.Add(uint64(1), uint16(0))
	f.Add(uint64(2), uint16(31))
	f.Add(uint64(3), uint16(1025))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) {
		for _, k := range Available() {
			for _, l := range loops {
				if err := l.check(k, seed, int(n%5000)); err != nil {
					t.Errorf("%s: %s: %v", k.Name, l.name, err)
				}
			}
		}
	})
}

// An element's bits don't depend on where it stands, nor on how a range is cut.
func TestPlaceChangesNothing(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		for _, l := range loops {
			if !l.each {
				continue
			}
			const n = 200
			_, whole := l.operands(rand.New(rand.NewPCG(3, 3)), n)
			_, cut := l.operands(rand.New(rand.NewPCG(3, 3)), n)
			l.run(k, whole)
			for lo, r := 0, rand.New(rand.NewPCG(5, 5)); lo < n; {
				hi := min(n, lo+r.IntN(40))
				part := make([][]float32, len(cut))
				for j := range cut {
					part[j] = cut[j][lo:hi]
				}
				l.run(k, part)
				lo = hi
			}
			for j := range whole {
				same(t, l.name, cut[j], whole[j])
			}
		}
	})
}

// The vectors' width changes no bit.
func TestWidthChangesNothing(t *testing.T) {
	ks := Available()
	if len(ks) < 3 {
		t.Skip("this processor has no AVX-512 to compare with AVX2")
	}
	for _, l := range loops {
		for _, n := range append(lengths(), 5000) {
			_, wide := l.operands(rand.New(rand.NewPCG(3, uint64(n))), n)
			_, narrow := l.operands(rand.New(rand.NewPCG(3, uint64(n))), n)
			a, b := l.run(ks[0], wide), l.run(ks[1], narrow)
			if !slices.Equal(a, b) {
				t.Errorf("%s: %d elements: %s returns %v, %s %v", l.name, n, ks[0].Name, a, ks[1].Name, b)
			}
			for j := range wide {
				same(t, l.name, wide[j], narrow[j])
			}
		}
	}
}

// same compares bits.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range want {
		if math.Float32bits(got[i]) != math.Float32bits(v) {
			t.Errorf("%s: element %d is %x, want %x", what, i, got[i], v)
			return
		}
	}
}
