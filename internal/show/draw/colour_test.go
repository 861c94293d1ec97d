package draw

import (
	"math"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// linear is a colour as light.
func linear(c colour) [3]float64 {
	var l [3]float64
	for i, v := range c {
		v /= 255
		if v <= 0.04045 {
			l[i] = v / 12.92
		} else {
			l[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return l
}

// contrast is that of the Web Content Accessibility Guidelines, from 1 to 21.
func contrast(a, b colour) float64 {
	luminance := func(c colour) float64 {
		l := linear(c)
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2] + 0.05
	}
	x, y := luminance(a), luminance(b)
	return max(x, y) / min(x, y)
}

func everyFill(visit func(t scheduler.Type, shade, shades int, c colour)) {
	for typ, r := range ramps {
		for n := 1; n <= maxShades; n++ {
			for i := range n {
				visit(typ, i, n, r.fill(i, n))
			}
		}
	}
}

func TestNumbersCanBeReadInEveryColour(t *testing.T) {
	everyFill(func(typ scheduler.Type, shade, shades int, c colour) {
		if r := contrast(ink, c); r < 4.5 {
			t.Errorf("%v, shade %d of %d: contrast %.1f with the numbers, want 4.5", typ, shade, shades, r)
		}
	})
}

// What eyes without one kind of cone see of light (Machado, Oliveira and Fernandes 2009,
// severity 1).
var eyes = map[string][3][3]float64{
	"all cones": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"no long":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"no middle": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"no short":  {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// lab is a colour in CIELAB as some eyes see it.
func lab(c colour, eye [3][3]float64) [3]float64 {
	l := linear(c)
	var s [3]float64
	for i := range s {
		s[i] = min(1, max(0, eye[i][0]*l[0]+eye[i][1]*l[1]+eye[i][2]*l[2]))
	}
	f := func(v float64) float64 {
		if v > 0.008856 {
			return math.Cbrt(v)
		}
		return 7.787*v + 16.0/116
	}
	x := f((0.4124*s[0] + 0.3576*s[1] + 0.1805*s[2]) / 0.9505)
	y := f(0.2126*s[0] + 0.7152*s[1] + 0.0722*s[2])
	z := f((0.0193*s[0] + 0.1192*s[1] + 0.9505*s[2]) / 1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// Forward, gradient and weight gradient differ in every pair of shades, not only in
// those that happen to be as light. A backward and an input gradient may be alike.
func TestTypesCanBeToldApart(t *testing.T) {
	for name, eye := range eyes {
		everyFill(func(a scheduler.Type, i, n int, x colour) {
			everyFill(func(b scheduler.Type, j, m int, y colour) {
				gradients := (a == scheduler.I || a == scheduler.B) && (b == scheduler.I || b == scheduler.B)
				if a >= b || n != m || gradients {
					return
				}
				least := 20.0
				if name == "no short" {
					least = 12 // blue and green are hardest for them, one eye in ten thousand
				}
				if d := distance(lab(x, eye), lab(y, eye)); d < least {
					t.Errorf("eyes with %s: %v shade %d and %v shade %d of %d are %.0f apart, want %v", name, a, i, b, j, n, d, least)
				}
			})
		})
	}
}

func TestChunksCanBeToldApart(t *testing.T) {
	for typ, r := range ramps {
		for n := 2; n <= 4; n++ {
			for i := 1; i < n; i++ {
				if d := distance(lab(r.fill(i-1, n), eyes["all cones"]), lab(r.fill(i, n), eyes["all cones"])); d < 6 {
					t.Errorf("%v: shades %d and %d of %d are %.0f apart, want 6", typ, i-1, i, n, d)
				}
			}
		}
	}
}
