package vec

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// BenchmarkLoops reports the rate of reading and writing operands that lie in
// the first-level cache (4 KiB each), in the second or third (256 KiB), and in
// memory (16 MiB).
func BenchmarkLoops(b *testing.B) {
	d := NewDropout(rng.NewKey(1, 2), 3, 0.1)
	row := func(x []float32) []float32 { return x[:min(len(x), 1024)] }
	for _, l := range []struct {
		name  string
		moved int // numbers read and written for each element
		run   func(k *Kernels, n int, t [5][]float32, keep []uint32)
	}{
		{"exp", 2, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Exp(t[0], t[1]) }},
		{"tanh", 2, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Tanh(t[0], t[1]) }},
		{"gelu", 2, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.GELU(t[0], t[1]) }},
		{"geluGrad", 3, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.GELUGrad(t[0], t[1], t[2]) }},
		{"swiglu", 3, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.SwiGLU(t[0], t[1], t[2]) }},
		{"swigluGrad", 5, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.SwiGLUGrad(t[0], t[1], t[2], t[3], t[4]) }},
		{"sum of 2", 3, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Sum(t[0], false, t[1:3]...) }},
		{"sum of 4", 5, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Sum(t[0], false, t[1:]...) }},
		{"sum of 4 past the caches", 5, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Sum(t[0], true, t[1:]...) }},
		{"max", 1, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Max(t[1]) }},
		{"sumExp", 1, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.SumExp(t[1], 1) }},
		{"crossEntropyGrad", 2, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.CrossEntropyGrad(t[0], t[1], 1, 0.5) }},
		{"squares", 1, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.Squares(t[1]) }},
		{"keep", 1, func(k *Kernels, n int, _ [5][]float32, keep []uint32) { k.Keep(keep, d, 5, n) }},
		{"keepAndDrop", 3, func(k *Kernels, n int, t [5][]float32, keep []uint32) {
			for at := 0; at < n; at += 1024 {
				k.Drop(t[0][at:at+1024], t[1][at:], k.Keep(keep, d, uint64(at), 1024), t[2][at:], d.Scale)
			}
		}},
		{"adamw", 7, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.AdamW(t[0], t[1], t[2], t[3], testAdamW) }},
		{"layerNorm", 2, func(k *Kernels, n int, t [5][]float32, _ []uint32) {
			for at := 0; at < n; at += 1024 {
				k.LayerNorm(row(t[0][at:]), t[1][at:], row(t[2]), row(t[3]), 1e-5)
			}
		}},
		{"layerNormGrad", 4, func(k *Kernels, n int, t [5][]float32, _ []uint32) {
			for at := 0; at < n; at += 1024 {
				k.LayerNormGrad(row(t[0][at:]), t[1][at:], t[3][at:], row(t[2]), t[4][at:], 0.1, 0.9)
			}
		}},
		{"layerNormWeightGrad", 2, func(k *Kernels, n int, t [5][]float32, _ []uint32) {
			k.LayerNormWeightGrad(row(t[0]), row(t[1]), t[2], t[3], t[4][:2*(n/1024)])
		}},
		{"rmsNorm", 2, func(k *Kernels, n int, t [5][]float32, _ []uint32) {
			for at := 0; at < n; at += 1024 {
				k.RMSNorm(row(t[0][at:]), t[1][at:], row(t[2]), 1e-5)
			}
		}},
		{"colSum", 1, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.ColSum(row(t[0]), t[1]) }},
		{"rope", 2, func(k *Kernels, n int, t [5][]float32, _ []uint32) {
			for at := 0; at < n; at += 1024 {
				k.RoPE(t[0][at:], t[1][:32], t[2][:32], 16, false)
			}
		}},
		{"roundBF16", 2, func(k *Kernels, _ int, t [5][]float32, _ []uint32) { k.RoundBF16(t[0], t[1]) }},
	} {
		for _, k := range Available() {
			for _, n := range []int{1 << 10, 1 << 16, 1 << 22} {
				b.Run(fmt.Sprintf("%s/%s/%d", l.name, k.Name, n), func(b *testing.B) {
					var t [5][]float32
					for j := range t {
						t[j] = make([]float32, n)
						for i := range t[j] {
							t[j][i] = float32(i%13)/4 + 0.01
						}
					}
					keep := make([]uint32, KeepSize(n))
					b.SetBytes(int64(4 * n * l.moved))
					for b.Loop() {
						l.run(k, n, t, keep)
					}
				})
			}
		}
	}
}
