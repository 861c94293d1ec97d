package cpu

import (
	"math"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// rotation is the usual one of a base.
func rotation(theta float64, pairs int) *tensorops.Rotation {
	frequencies := make([]float64, pairs)
	for i := range frequencies {
		frequencies[i] = math.Pow(theta, -float64(i)/float64(pairs))
	}
	return tensorops.NewRotation(frequencies, 1)
}

// TestAnglesByContent: equal rotations share a table, and others do not.
func TestAnglesByContent(t *testing.T) {
	var c angleCache
	for range 10 {
		c.get(rotation(1e4, 4), 16)
	}
	if len(c.tables) != 1 || c.kept != 64 {
		t.Errorf("%d tables with %d angles for one rotation", len(c.tables), c.kept)
	}
	scaled := tensorops.NewRotation([]float64{1, 0.1}, 2)
	a, _ := c.get(tensorops.NewRotation([]float64{1, 0.1}, 1), 2)
	b, _ := c.get(scaled, 2)
	if b.cos[2] != float32(2*math.Cos(1)) || a.cos[2] != float32(math.Cos(1)) || len(c.tables) != 3 {
		t.Errorf("cosines %g and %g, %d tables", a.cos[2], b.cos[2], len(c.tables))
	}
}

// TestAnglesGrow: generation asks for one position more with every token, and must not
// pay for all positions before it each time.
func TestAnglesGrow(t *testing.T) {
	const half, tokens = 4, 4000
	key := rotation(1e4, half)
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
		if _, kept := c.get(rotation(float64(theta+2), half), 1<<14); !kept {
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
	if _, kept := c.get(rotation(2, half), limitAngles/half+1); kept {
		t.Error("a table above the limit is kept")
	}
	if _, kept := c.get(rotation(2, half), math.MaxInt); kept {
		t.Error("a number of positions whose angles overflow is kept")
	}
}
