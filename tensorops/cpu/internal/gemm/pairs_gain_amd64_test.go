package gemm

import (
	"testing"
	"time"
)

// TestPairGain: a clock that stood still does not rule the path out.
func TestPairGain(t *testing.T) {
	for _, c := range []struct {
		floats, pairs time.Duration
		want          float64
	}{{10, 10, 2}, {10, 20, 1}, {0, 0, 2}, {0, 500, 2}, {500, 0, 2}} {
		if got := pairGain(c.floats, c.pairs); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.floats, c.pairs, got, c.want)
		}
	}
}
