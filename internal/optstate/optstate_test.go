package optstate_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/optstate"
)

// TestValues compares the codes with values that bitsandbytes' create_dynamic_map has for signed and unsigned numbers.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		ofRoot  bool
		count   int
		has     map[int]float64
		smaller float64 // the smallest value above 0
	}{
		{false, 128, map[int]float64{0: 0, 1: 3.25e-6, 2: 7.75e-6, 63: 0.1 + 0.9/128, 126: 1 - 0.9/128, 127: 1}, 3.25e-6},
		{true, 256, map[int]float64{0: 0, 1: 3.25e-7, 2: 7.75e-7, 3: 2.125e-6, 127: 0.1 + 0.9/256, 254: 1 - 0.9/256, 255: 1}, 3.25e-7},
	} {
		v := optstate.Values(c.ofRoot)
		if len(v) != c.count || !slices.IsSorted(v) || float64(v[1]) > c.smaller*1.000001 {
			t.Errorf("root %v: %d values, sorted %v, the smallest is %g", c.ofRoot, len(v), slices.IsSorted(v), v[1])
		}
		for i, want := range c.has {
			if v[i] != float32(want) {
				t.Errorf("root %v: value %d is %g, want %g", c.ofRoot, i, v[i], want)
			}
		}
	}
}

// numbers draws a block of numbers of very different sizes, or of squares.
func numbers(t *rapid.T, ofRoot bool) []float32 {
	n := rapid.IntRange(1, optstate.Block).Draw(t, "n")
	key, small := rng.NewKey(rapid.Uint64().Draw(t, "seed"), 1), rapid.IntRange(-60, 0).Draw(t, "small")
	x := make([]float32, n)
	rng.Normal(x, key, 0, 0, 1)
	for i := range x {
		x[i] *= float32(math.Pow(2, float64(int(rng.Intn(key, 1, uint64(i), 20))-10+small)))
		if rng.Intn(key, 2, uint64(i), 10) == 0 {
			x[i] = 0
		}
		if ofRoot {
			x[i] *= x[i]
		}
	}
	return x
}

// TestStoredAgain: numbers that are read and stored again have the same codes and scale, and none above 0 is lost as a square.
func TestStoredAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ofRoot := rapid.Bool().Draw(t, "root")
		x := numbers(t, ofRoot)
		var halves []uint16
		if rapid.Bool().Draw(t, "at random") {
			halves = make([]uint16, len(x))
			optstate.Halves(halves, rng.NewKey(1, 2), 3, 4)
		}
		codes, again, y := make([]byte, len(x)), make([]byte, len(x)), make([]float32, len(x))
		scale := optstate.Encode(codes, x, ofRoot, halves)
		optstate.Decode(y, codes, scale, ofRoot)
		if s := optstate.Encode(again, y, ofRoot, nil); s != scale || !bytes.Equal(again, codes) {
			t.Fatalf("stored again the scale is %g, was %g;\n%v, was\n%v", s, scale, again, codes)
		}
		for i := range x {
			if ofRoot && x[i] > 0 && y[i] == 0 {
				t.Fatalf("%g is stored as 0 with the scale %g", x[i], scale)
			}
			if x[i] == 0 && y[i] != 0 || x[i]*y[i] < 0 {
				t.Fatalf("%g is stored as %g", x[i], y[i])
			}
		}
		part, first := make([]float32, len(y)-len(y)/3), len(y)/3
		optstate.DecodeAt(part, first, codes, []float32{scale}, ofRoot)
		if !slices.Equal(part, y[first:]) {
			t.Fatalf("the elements from %d on are %v, want %v", first, part, y[first:])
		}
	})
}

// TestNearest: without random bits the value is the nearest one, which a search of all values finds too.
func TestNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := numbers(t, false)
		codes, y := make([]byte, len(x)), make([]float32, len(x))
		scale := optstate.Encode(codes, x, false, nil)
		optstate.Decode(y, codes, scale, false)
		for i, v := range x {
			r := math.Abs(float64(v / scale))
			best := math.Inf(1)
			for _, value := range optstate.Values(false) {
				best = min(best, math.Abs(float64(value)-r))
			}
			if got := math.Abs(float64(optstate.Values(false)[codes[i]&0x7f]) - r); got != best {
				t.Fatalf("%g of %g is %g from its value, but one is at %g", v, scale, got, best)
			}
		}
	})
}

// TestUnbiased: the mean of numbers that are rounded at random is the number, in both forms.
func TestUnbiased(t *testing.T) {
	const draws = 1 << 16 // all values of the random bits
	for _, v := range []float32{0.3, -0.777, 1.0001, 1e-3, -2e-5} {
		var mean [2]float64
		x, codes, narrow, y := []float32{1.5, v}, make([]byte, 2), make([]uint16, 2), make([]float32, 2)
		for i := range draws {
			halves := []uint16{0, uint16(i)}
			scale := optstate.Encode(codes, x, false, halves)
			optstate.Decode(y, codes, scale, false)
			mean[0] += float64(y[1]) / draws
			optstate.RoundBF16(narrow, x, halves)
			mean[1] += float64(math.Float32frombits(uint32(narrow[1])<<16)) / draws
		}
		for form, m := range mean {
			if d := math.Abs(m/float64(v) - 1); d > 1e-4 {
				t.Errorf("form %d: the mean of %g is %g", form, v, m)
			}
		}
	}
}

// TestHalves: the bits of an element do not depend on where the range begins, and differ from update to update.
func TestHalves(t *testing.T) {
	key := rng.NewKey(7, 8)
	all, other := make([]uint16, 100), make([]uint16, 100)
	optstate.Halves(all, key, 9, 0)
	optstate.Halves(other, key, 10, 0)
	if slices.Equal(all, other) {
		t.Error("two updates have the same bits")
	}
	many, sum := make([]uint16, 1<<16), 0.0
	optstate.Halves(many, key, 9, 3)
	for _, h := range many {
		sum += float64(h)
	}
	if mean := sum / (1 << 16); math.Abs(mean-32767.5) > 300 { // four standard deviations
		t.Errorf("the mean of 16 random bits is %g", mean)
	}
	for first := range 20 {
		part := make([]uint16, 50)
		optstate.Halves(part, key, 9, uint64(first))
		if !slices.Equal(part, all[first:first+50]) {
			t.Errorf("from element %d on the bits differ", first)
		}
	}
}

// TestDamage: numbers that are not finite stay so, and do not panic.
func TestDamage(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, ofRoot := range []bool{false, true} {
		for _, v := range []float32{inf, nan} {
			x, codes, y := []float32{1, v, 0}, make([]byte, 3), make([]float32, 3)
			scale := optstate.Encode(codes, x, ofRoot, nil)
			if optstate.Decode(y, codes, scale, ofRoot); y[1]-y[1] == 0 {
				t.Errorf("root %v: %g is stored as %g", ofRoot, v, y[1])
			}
		}
	}
	to := make([]uint16, 4)
	optstate.RoundBF16(to, []float32{inf, nan, math.MaxFloat32, 0x1p-140}, []uint16{65535, 65535, 65535, 65535})
	if to[0] != 0x7f80 || to[1]&0x7fc0 != 0x7fc0 || to[2] != 0x7f7f || to[3] == 0 {
		t.Errorf("stored as %x", to)
	}
}

// TestEncode compares the codes with those of a search of all values.
func TestEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ofRoot := rapid.Bool().Draw(t, "root")
		x := numbers(t, ofRoot)
		codes, halves := make([]byte, len(x)), make([]uint16, len(x))
		optstate.Halves(halves, rng.NewKey(rapid.Uint64().Draw(t, "key"), 2), 3, 4)
		scale, values := optstate.Encode(codes, x, ofRoot, halves), optstate.Values(ofRoot)
		for i, v := range x {
			r := float32(math.Abs(float64(v))) / scale
			if ofRoot {
				r = float32(math.Sqrt(float64(v))) / scale
			}
			k, found := slices.BinarySearch(values, r)
			if !found {
				k--
				share := (float64(r) - float64(values[k])) / (float64(values[k+1]) - float64(values[k]))
				if share > (float64(halves[i])+0.5)/(1<<16) || ofRoot && k == 0 {
					k++
				}
			}
			want := byte(k)
			if v < 0 && k > 0 {
				want |= 0x80
			}
			if codes[i] != want {
				t.Fatalf("%g with the scale %g and the bits %d is code %d, want %d", v, scale, halves[i], codes[i], want)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	x, codes := make([]float32, optstate.Block), make([]byte, optstate.Block)
	halves, narrow := make([]uint16, optstate.Block), make([]uint16, optstate.Block)
	rng.Normal(x, rng.NewKey(1, 1), 0, 0, 1)
	optstate.Halves(halves, rng.NewKey(1, 2), 3, 4)
	squares := make([]float32, len(x))
	for i, v := range x {
		squares[i] = v * v
	}
	for name, run := range map[string]func(){
		"mean":     func() { optstate.Encode(codes, x, false, halves) },
		"squares":  func() { optstate.Encode(codes, squares, true, halves) },
		"decode":   func() { optstate.Decode(x, codes, 1, false) },
		"bfloat16": func() { optstate.RoundBF16(narrow, x, halves) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*optstate.Block), "ns/element")
		})
	}
}
