package cpu

import (
	"math"
	"testing"
)

// TestAnglesGrow: generation asks for one position more with every token, and must not
// pay for all positions before it each time.
func TestAnglesGrow(t *testing.T) {
	const theta, half, tokens = 1e4, 4, 4000
	key := angleKey{theta: theta, half: half}
	var c angleCache
	tables := make(map[*float32]bool)
	for positions := 1; positions <= tokens; positions++ {
		a, kept := c.get(key, positions)
		if !kept || len(a.cos) < positions*half || len(a.sin) != len(a.cos) {
			t.Fatalf("%d positions: %d angles, kept %v", positions, len(a.cos), kept)
		}
		tables[&a.cos[0]] = true
	}
	if n := len(tables); n > 13 { // 1, 2, 4, … 4096 positions
		t.Errorf("%d tables were made for %d tokens", n, tokens)
	}
	grown, _ := c.get(key, tokens)
	var once angleCache
	whole, _ := once.get(key, tokens)
	row := angles{make([]float32, half), make([]float32, half)}
	for p := range tokens {
		row.fill(key, p)
		for i := range half {
			at := p*half + i
			if grown.cos[at] != whole.cos[at] || grown.sin[at] != whole.sin[at] || row.cos[i] != whole.cos[at] || row.sin[i] != whole.sin[at] {
				t.Fatalf("position %d, pair %d: the angle depends on how it was asked for", p, i)
			}
		}
	}
}

// TestAnglesBounded: what is kept has a bound, over all tables and for one.
func TestAnglesBounded(t *testing.T) {
	const half = 64
	var c angleCache
	for theta := range 20 {
		if _, kept := c.get(angleKey{theta: float64(theta + 2), half: half}, 1<<14); !kept {
			t.Fatal("a usual table is not kept")
		}
		sum := 0
		for _, a := range c.tables {
			sum += len(a.cos)
		}
		if sum != c.kept || sum > limitAngles {
			t.Fatalf("%d angles are kept, %d counted, the limit is %d", sum, c.kept, limitAngles)
		}
	}
	if _, kept := c.get(angleKey{theta: 2, half: half}, limitAngles/half+1); kept {
		t.Error("a table above the limit is kept")
	}
	if _, kept := c.get(angleKey{theta: 2, half: half}, math.MaxInt); kept {
		t.Error("a number of positions whose angles overflow is kept")
	}
}
