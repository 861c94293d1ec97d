package cpu

import (
	"math"
	"testing"
)

// Every path's exponential, over its whole range and at its ends.
func TestExpWithin2ULP(t *testing.T) {
	const lowest = -87.33 // below, the result is subnormal
	for _, k := range available() {
		var x []float32
		for v := lowest; v < 88.72; v += 0.00137 {
			x = append(x, float32(v))
		}
		got := make([]float32, len(x))
		k.exp(got, x)
		worst := 0.0
		for i, v := range x {
			want := math.Exp(float64(v))
			ulp := float64(math.Nextafter32(float32(want), math.MaxFloat32)) - float64(float32(want))
			worst = math.Max(worst, math.Abs(float64(got[i])-want)/ulp)
		}
		if worst > 2 {
			t.Errorf("%s: %.2f ulp", k.name, worst)
		}
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		ends := []float32{-inf, -1e30, -110, 0, 88.73, 1e30, inf, nan, nan}
		k.exp(ends, ends)
		for i, want := range []float32{0, 0, 0, 1, inf, inf, inf} {
			if ends[i] != want {
				t.Errorf("%s: end %d is %g, want %g", k.name, i, ends[i], want)
			}
		}
		if ends[7] == ends[7] || ends[8] == ends[8] {
			t.Errorf("%s: the exponential of NaN is %g", k.name, ends[7])
		}
	}
}
