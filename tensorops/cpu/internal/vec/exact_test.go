package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// ulps32 is the distance from want to got in ulps of want.
func ulps32(got float32, want float64) float64 {
	w := float32(math.Abs(want))
	return math.Abs(float64(got)-want) / (float64(math.Nextafter32(w, inf)) - float64(w))
}

// The bounds that the package promises.
func TestPrecision(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		expBound, tanhBound := 0.9, 1.6
		if k == &Go {
			expBound = 1.2
		}
		for _, f := range []struct {
			name     string
			run      func(dst, src []float32)
			want     func(float64) float64
			from, to float64
			bound    float64
		}{
			{"exp", k.Exp, math.Exp, -86.98, 88.72, expBound},
			{"tanh", k.Tanh, math.Tanh, -10, 10, tanhBound},
			{"tanh", k.Tanh, math.Tanh, -0.01, 0.01, tanhBound},
		} {
			var x []float32
			for i := range 300_000 {
				x = append(x, float32(f.from+(f.to-f.from)*float64(i)/300_000))
			}
			got := make([]float32, len(x))
			f.run(got, x)
			worst, at := 0.0, float32(0)
			for i, v := range x {
				if u := ulps32(got[i], f.want(float64(v))); u > worst {
					worst, at = u, v
				}
			}
			if worst > f.bound {
				t.Errorf("%s: %.3f ulp at %g", f.name, worst, at)
			}
		}
	})
}

func TestEnds(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		for _, f := range []struct {
			name    string
			run     func(dst, src []float32)
			x, want []float32
		}{
			{"exp", k.Exp, []float32{-inf, -1e30, -110, -87.4, 0, 88.73, 1e30, inf, nan}, []float32{0, 0, 0, 0, 1, inf, inf, inf, nan}},
			{"tanh", k.Tanh, []float32{-inf, -20, 0, 20, inf, nan}, []float32{-1, -1, 0, 1, 1, nan}},
			{"gelu", k.GELU, []float32{-1e20, 0, 1e20, nan}, []float32{0, 0, 1e20, nan}},
		} {
			got := make([]float32, len(f.x))
			f.run(got, f.x)
			for i, w := range f.want {
				if g := got[i]; g != w && !(g != g && w != w) {
					t.Errorf("%s of %g is %g, want %g", f.name, f.x[i], g, w)
				}
			}
		}
	})
}

func TestMaxPassesOverNaN(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		for n := range 100 {
			x := make([]float32, n+1)
			for i := range x {
				x[i] = nan
			}
			if got := k.Max(x); got != -inf {
				t.Errorf("%d NaN: %g", n+1, got)
			}
			x[n] = -3
			if got := k.Max(x); got != -3 {
				t.Errorf("%d NaN before -3: %g", n, got)
			}
		}
	})
}

// Where no product is rounded, every path sums to the same bits: they use the
// same lanes.
func TestLanes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range append(lengths(), 4099) {
		x, ones := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], ones[i] = float32(r.NormFloat64()), 1
		}
		for _, k := range Available() {
			got, _ := k.normSums(x, x, ones, 0)
			want, _ := Go.normSums(x, x, ones, 0)
			if got != want {
				t.Errorf("%s: a sum of %d is %x, want %x", k.Name, n, got, want)
			}
			if got, want := k.Squares(x), Go.Squares(x); got != want {
				t.Errorf("%s: a sum of %d squares is %x, want %x", k.Name, n, got, want)
			}
		}
	}
}

// A row that is far from zero keeps its statistics.
func TestLayerNormFarFromZero(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		x, y, gamma := make([]float32, 777), make([]float32, 777), make([]float32, 777)
		for i := range x {
			x[i], gamma[i] = float32(1e6+r.NormFloat64()), 1
		}
		wide := widen(x)
		want := layerNorm64(make([]float64, len(x)), wide, widen(gamma), make([]float64, len(x)))
		mean, rstd := k.LayerNorm(y, x, gamma, nil, 1e-5)
		if ulps32(mean, want[0]) > 0.51 || ulps32(rstd, want[1]) > 0.51 {
			t.Errorf("mean %g, rstd %g, want %g, %g", mean, rstd, want[0], want[1])
		}
	})
}

// Rows are added in ascending order, four at a time or one.
func TestRowSums(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, c := range []int{1, 7, 8, 33, 100} {
			for rows := range 11 {
				random := func(n int) []float32 {
					x := make([]float32, n)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					return x
				}
				x, dy, stats := random(rows*c), random(rows*c), random(2*rows)
				sum, gamma, beta, rms := random(c), random(c), random(c), random(c)
				wantSum, wantGamma, wantBeta, wantRMS := widen(sum), widen(gamma), widen(beta), widen(rms)
				for i, v := range widen(x) {
					g, row, j := float64(dy[i]), i/c, i%c
					wantSum[j] += v
					wantGamma[j] += g * (v - float64(stats[2*row])) * float64(stats[2*row+1])
					wantBeta[j] += g
					wantRMS[j] += g * v * float64(stats[row])
				}
				k.ColSum(sum, x)
				k.LayerNormWeightGrad(gamma, beta, dy, x, stats)
				k.RMSNormWeightGrad(rms, dy, x, stats[:rows])
				for what, pair := range map[string]struct {
					got  []float32
					want []float64
				}{"sum": {sum, wantSum}, "dgamma": {gamma, wantGamma}, "dbeta": {beta, wantBeta}, "rms": {rms, wantRMS}} {
					for j, w := range pair.want {
						if math.Abs(float64(pair.got[j])-w) > 1e-5 {
							t.Errorf("%s of %d×%d: column %d is %g, want %g", what, rows, c, j, pair.got[j], w)
						}
					}
				}
			}
		}
	})
}

func TestRoPE(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, half := range []int{0, 1, 4, 8, 13, 16, 32, 35} {
			for heads := range 4 {
				memory := make([]float32, 2*half*heads+2)
				for i := range memory {
					memory[i] = float32(r.NormFloat64())
				}
				row := memory[1 : len(memory)-1]
				before := slices.Clone(memory)
				cos, sin := make([]float32, half), make([]float32, half)
				for i := range half {
					s, c := math.Sincos(float64(i) + 0.3)
					cos[i], sin[i] = float32(c), float32(s)
				}
				k.RoPE(row, cos, sin, heads, false)
				for h := range heads {
					for i := range half {
						p, q := float64(before[1+2*half*h+i]), float64(before[1+2*half*h+half+i])
						c, s := float64(cos[i]), float64(sin[i])
						a, b := row[2*half*h+i], row[2*half*h+half+i]
						if math.Abs(float64(a)-(p*c-q*s)) > 1e-6 || math.Abs(float64(b)-(q*c+p*s)) > 1e-6 {
							t.Fatalf("%d heads of %d: the pair %d of head %d is %g, %g, want %g, %g", heads, 2*half, i, h, a, b, p*c-q*s, q*c+p*s)
						}
					}
				}
				k.RoPE(row, cos, sin, heads, true)
				for i, v := range before {
					if math.Abs(float64(memory[i]-v)) > 1e-6 || (i == 0 || i == len(memory)-1) && memory[i] != v {
						t.Fatalf("%d heads of %d: there and back, element %d is %g, want %g", heads, 2*half, i-1, memory[i], v)
					}
				}
			}
		}
	})
}

// The masks are those of internal/base/rng, wherever they begin.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rng.Key{K0: rapid.Uint32().Draw(t, "k0"), K1: rapid.Uint32().Draw(t, "k1")}
		step, first := rapid.Uint64().Draw(t, "step"), rapid.Uint64Max(1<<60).Draw(t, "first")
		p, n := rapid.Float64Range(0, 0.999).Draw(t, "p"), rapid.IntRange(0, 200).Draw(t, "n")
		d := NewDropout(key, step, p)
		for _, k := range Available() {
			buf := make([]uint32, KeepSize(n))
			for i, mask := range k.Keep(buf, d, first, n) {
				at := first + uint64(i)
				var words [4]uint32
				words[0], words[1], words[2], words[3] = rng.Block(key, step, at/4)
				want := uint32(0)
				if words[at%4] >= uint32(p*(1<<32)) {
					want = math.MaxUint32
				}
				if mask != want {
					t.Fatalf("%s: the mask of element %d is %x, want %x", k.Name, at, mask, want)
				}
			}
		}
	})
}

// The words are those of internal/base/rng, wherever they begin.
func TestWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rng.Key{K0: rapid.Uint32().Draw(t, "k0"), K1: rapid.Uint32().Draw(t, "k1")}
		hi, first := rapid.Uint64().Draw(t, "hi"), rapid.Uint64Max(1<<60).Draw(t, "first")
		n := rapid.IntRange(0, 200).Draw(t, "n")
		r := NewRandom(key, hi)
		for _, k := range Available() {
			for i, word := range k.Words(make([]uint32, WordsSize(n)), r, first, n) {
				at := first + uint64(i)
				var words [4]uint32
				words[0], words[1], words[2], words[3] = rng.Block(key, hi, at/4)
				if word != words[at%4] {
					t.Fatalf("%s: word %d is %x, want %x", k.Name, at, word, words[at%4])
				}
			}
		}
	})
}

// What is dropped is 0 whatever it was.
func TestDropNaN(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		y := []float32{nan, nan, inf}
		k.Drop(y, y, []uint32{0, math.MaxUint32, 0}, nil, 2)
		if y[0] != 0 || y[1] == y[1] || y[2] != 0 {
			t.Errorf("%g", y)
		}
	})
}

func TestBF16(t *testing.T) {
	cases := []struct{ from, to uint32 }{
		{0, 0}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80},
		{0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, // below, at and above the middle
		{0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, // ties go to even
		{0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, // infinite
		{0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, {0x7fc12345, 0x7fc1}, // not a number
		{1, 0}, {0x8000, 0}, {0x8001, 1}, {0x807fffff, 0x8080}, // subnormal
	}
	src, want := make([]float32, 70), make([]uint16, 70)
	for i := range src {
		c := cases[i%len(cases)]
		src[i], want[i] = math.Float32frombits(c.from), uint16(c.to)
	}
	onPaths(t, func(t *testing.T, k *Kernels) {
		for n := range len(src) {
			half, full, rounded := make([]uint16, n), make([]float32, n), make([]float32, n)
			k.ToBF16(half, src)
			k.FromBF16(full, half)
			k.RoundBF16(rounded, src)
			for i, h := range half {
				want := want[i]
				if b := math.Float32bits(src[i]); k.flushes && b&0x7f800000 == 0 {
					want = uint16(b >> 16 & 0x8000)
					rounded[i] = math.Float32frombits(uint32(want) << 16)
				}
				if h != want {
					t.Fatalf("%d elements: %x becomes %x, want %x", n, math.Float32bits(src[i]), h, want)
				}
				if b := math.Float32bits(full[i]); b != uint32(h)<<16 {
					t.Fatalf("%d elements: %x becomes %x", n, h, b)
				}
			}
			same(t, "rounded", rounded, full)
		}
	})
}

func TestAdamWClears(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		for n := range 40 {
			w, m, v, g := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n+1)
			for i := range g {
				g[i] = 1
			}
			step := testAdamW
			step.Clear = true
			k.AdamW(w, m, v, g, step)
			for i, e := range g {
				if (e == 0) != (i < n) {
					t.Fatalf("%d elements: gradient %d is %g", n, i, e)
				}
			}
		}
	})
}

// A slice that is too short is a panic, not a write to what is behind it.
func TestLengthsAreChecked(t *testing.T) {
	onPaths(t, func(t *testing.T, k *Kernels) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		k.Add(make([]float32, 9), make([]float32, 9), make([]float32, 8, 16)[:8:8])
	})
}
