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
