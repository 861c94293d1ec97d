package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// muonByHand is Muon in float64 on one matrix, without any operation of the engine.
func muonByHand(w, m, g []float64, rows, cols int, o tensorops.MuonOpts) {
	x, norm := make([]float64, len(w)), 0.0
	for i := range w {
		m[i] += (1 - o.Momentum) * (o.GradScale*g[i] - m[i])
		x[i] = (1-o.Momentum)*o.GradScale*g[i] + o.Momentum*m[i]
		norm += x[i] * x[i]
	}
	for i := range x {
		x[i] /= max(math.Sqrt(norm), 1e-7)
	}
	for range 5 {
		xt := transposed(x, rows, cols)
		a := product(x, xt, rows, cols, rows)
		aa := product(a, a, rows, rows, rows)
		for i := range a {
			a[i] = -4.7750*a[i] + 2.0315*aa[i]
		}
		bx := product(a, x, rows, rows, cols)
		for i := range x {
			x[i] = 3.4445*x[i] + bx[i]
		}
	}
	for i := range w {
		w[i] -= o.LR * (o.WeightDecay*w[i] + o.Factor*x[i])
	}
}

func transposed(x []float64, rows, cols int) []float64 {
	t := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = x[i*cols+j]
		}
	}
	return t
}

func product(a, b []float64, m, k, n int) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for l := range k {
			for j := range n {
				c[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return c
}

// muonCases are tensors of one matrix, and of several: side by side, one below another, and with rows of two in turn.
var muonCases = []struct {
	name string
	// at says where element (i, j) of matrix k lies.
	count, rows, cols, blocks int
	at                        func(k, i, j int) int
}{
	{"square", 1, 40, 40, 1, func(_, i, j int) int { return i*40 + j }},
	{"tall", 1, 70, 18, 1, func(_, i, j int) int { return i*18 + j }},
	{"wide", 1, 18, 70, 1, func(_, i, j int) int { return i*70 + j }},
	{"one row", 1, 1, 30, 1, func(_, _, j int) int { return j }},
	{"three side by side", 3, 24, 24, 24, func(k, i, j int) int { return i*72 + k*24 + j }},
	{"three one below another", 3, 16, 24, 1, func(k, i, j int) int { return k*16*24 + i*24 + j }},
	{"two, four heads of three rows", 2, 12, 20, 4, func(k, i, j int) int { return (i/3*6+k*3+i%3)*20 + j }},
}

// TestMuon compares three updates with those in float64, on both devices.
func TestMuon(t *testing.T) {
	own, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, dev := range map[string]tensorops.Device{"cpu": own, "ref": ref.New()} {
		for _, tt := range muonCases {
			t.Run(fmt.Sprintf("%s, %s", name, tt.name), func(t *testing.T) { checkMuon(t, dev, tt.count, tt.rows, tt.cols, tt.blocks, tt.at) })
		}
		dev.Close()
	}
}

func checkMuon(t *testing.T, dev tensorops.Device, count, rows, cols, blocks int, at func(k, i, j int) int) {
	s := dev.NewStream("muon")
	defer s.Close()
	n := count * rows * cols
	numbers := func(id uint64) []float32 {
		x := make([]float32, n)
		rng.Normal(x, rng.NewKey(5, id), 0, 0, 1)
		return x
	}
	host := numbers(1)
	want := make([][2][]float64, count) // w and m of each matrix
	for k := range want {
		for p := range want[k] {
			want[k][p] = make([]float64, rows*cols)
		}
		for i := range rows {
			for j := range cols {
				want[k][0][i*cols+j] = float64(host[at(k, i, j)])
			}
		}
	}
	o := tensorops.MuonOpts{LR: 0.05, Momentum: 0.9, WeightDecay: 0.1, GradScale: 0.5, Rows: rows, Cols: cols, Blocks: blocks,
		Factor: tensorops.MuonMatchRMS(rows, cols), ClearGrad: true}
	l := s.NewList()
	w, m, g := l.Alloc(tensorops.Float32, n), l.Alloc(tensorops.Float32, n), l.Alloc(tensorops.Float32, n)
	low := l.Alloc(tensorops.BFloat16, n)
	l.Upload(w, tensorops.HostBytes(host))
	l.Fill(m, 0)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		grads := numbers(uint64(2 + step))
		for k := range want {
			own := make([]float64, rows*cols)
			for i := range rows {
				for j := range cols {
					own[i*cols+j] = float64(grads[at(k, i, j)])
				}
			}
			muonByHand(want[k][0], want[k][1], own, rows, cols, o)
		}
		if step == 2 {
			o.Copy = low
		}
		l := s.NewList()
		l.Upload(g, tensorops.HostBytes(grads))
		l.Muon(w, m, g, o)
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string][]float32{"w": make([]float32, n), "m": make([]float32, n), "g": make([]float32, n), "copy": make([]float32, n)}
	l = s.NewList()
	wide := l.Alloc(tensorops.Float32, n)
	l.Copy(wide, low)
	for name, from := range map[string]tensorops.Tensor{"w": w, "m": m, "g": g, "copy": wide} {
		l.Fetch(tensorops.HostBytes(got[name]), from)
	}
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	for k := range want {
		for i := range rows {
			for j := range cols {
				e, h := at(k, i, j), i*cols+j
				near := func(what string, got float32, want, within float64) {
					if !(math.Abs(float64(got)-want) <= within) {
						t.Fatalf("%s of matrix %d at row %d, column %d is %g, want %g", what, k, i, j, got, want)
					}
				}
				near("the weight", got["w"][e], want[k][0][h], 1e-5)
				near("the momentum", got["m"][e], want[k][1][h], 1e-5)
				near("the gradient", got["g"][e], 0, 0)
				near("the copy", got["copy"][e], want[k][0][h], math.Abs(want[k][0][h])/256+1e-5)
			}
		}
	}
}
