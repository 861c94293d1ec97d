package cpu

import (
	"strings"
	"testing"
)

// A processor whose instruction for bfloat16 gains too little is better off without it.
func TestByGain(t *testing.T) {
	pairs, floats := path{kernels: &avx512BF16Kernels, has: true}, path{kernels: &avx512Kernels, has: true}
	for _, c := range []struct {
		gain  float64
		first *kernels
		says  string
	}{
		{2, &avx512BF16Kernels, "2.0 times as fast"},
		{leastGain, &avx512BF16Kernels, "1.2 times as fast"},
		{1, &avx512Kernels, "1.0 times as fast as float32, which is too little"},
		{0.5, &avx512Kernels, "too little"},
	} {
		first, second := byGain(pairs, floats, c.gain)
		if first.kernels != c.first {
			t.Errorf("gain %g: %s comes first, want %s", c.gain, first.kernels.name, c.first.name)
		}
		if note := first.note + second.note; !strings.Contains(note, c.says) {
			t.Errorf("gain %g: %q isn't in: %s", c.gain, c.says, note)
		}
	}
}
