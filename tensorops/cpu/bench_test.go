package cpu_test

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// BenchmarkMatMul reports the rate of matrix products of training's sizes.
func BenchmarkMatMul(b *testing.B) {
	for _, path := range cpu.Paths() {
		for _, threads := range []int{1, 2} {
			for _, s := range [][3]int{{64, 64, 64}, {256, 384, 128}, {256, 512, 128}, {256, 768, 768}, {256, 3072, 768}, {256, 768, 3072},
				{1024, 1024, 1024}, {2048, 2048, 2048}, {256, 50257, 768}} {
				m, n, k := s[0], s[1], s[2]
				b.Run(fmt.Sprintf("%s/threads=%d/%dx%dx%d", path, threads, m, n, k), func(b *testing.B) {
					dev, err := cpu.New(cpu.Options{Threads: threads, Kernels: path})
					if err != nil {
						b.Fatal(err)
					}
					defer dev.Close()
					s := dev.NewStream("bench")
					l := s.NewList()
					x, w, y := l.Alloc(tensorops.Float32, m, k), l.Alloc(tensorops.Float32, k, n), l.Alloc(tensorops.Float32, m, n)
					l.Fill(x, 1)
					l.Fill(w, 1)
					if err := tensorops.Run(s, l); err != nil {
						b.Fatal(err)
					}
					const each = 8 // products in a list, so that submitting is not what is measured
					for b.Loop() {
						l := s.NewList()
						for range each {
							l.MatMul(y, x, w, tensorops.MatMulOpts{})
						}
						if err := tensorops.Run(s, l); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(2*m*n*k*each)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkMuon measures an update of one matrix.
func BenchmarkMuon(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, bf16 := range []bool{false, true} {
			for _, cols := range []int{512, 2048} {
				name := fmt.Sprintf("threads=%d/bfloat16=%v/512x%d", threads, bf16, cols)
				b.Run(name, func(b *testing.B) { benchMuon(b, threads, bf16, 512, cols) })
			}
		}
	}
}

func benchMuon(b *testing.B, threads int, bf16 bool, rows, cols int) {
	dev, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	s := dev.NewStream("bench")
	defer s.Close()
	const count = 4 // matrices, so that not all of them is in a cache
	var w, m, g, low [count]tensorops.Tensor
	l := s.NewList()
	for i := range w {
		for _, t := range []*tensorops.Tensor{&w[i], &m[i], &g[i]} {
			*t = l.Alloc(tensorops.Float32, rows, cols)
			l.Fill(*t, 1)
		}
		low[i] = l.Alloc(tensorops.BFloat16, rows, cols)
	}
	if err := tensorops.Run(s, l); err != nil {
		b.Fatal(err)
	}
	o := tensorops.MuonOpts{LR: 1e-3, Momentum: 0.9, WeightDecay: 0.1, GradScale: 1, Rows: rows, Cols: cols, Blocks: 1, Factor: 1,
		BF16: bf16, ClearGrad: true}
	for b.Loop() {
		l := s.NewList()
		for i := range w {
			o.Copy = low[i]
			l.Fill(g[i], 1)
			l.Muon(w[i], m[i], g[i], o)
		}
		if err := tensorops.Run(s, l); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count*rows*cols), "ns/weight")
}
