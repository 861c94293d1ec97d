package testrun

import (
	"math"
	"testing"
)

// NearFigures compares the losses of two runs line by line.
func NearFigures(t testing.TB, want, got string, relative float64) {
	t.Helper()
	NearFiguresBy(t, want, got, relative, relative)
}

// NearFiguresBy is NearFigures with another bound for gradient norms.
func NearFiguresBy(t testing.TB, want, got string, relative, norm float64) {
	t.Helper()
	a, b := Records(t, want), Records(t, got)
	if len(a) != len(b) {
		t.Fatalf("%d lines, want %d", len(b), len(a))
	}
	for i := range a {
		for _, v := range []struct {
			name string
			x, y *float64
			by   float64
		}{{"loss", a[i].Loss, b[i].Loss, relative}, {"validation loss", a[i].ValLoss, b[i].ValLoss, relative},
			{"gradient norm", a[i].GradNorm, b[i].GradNorm, norm}} {
			if (v.x == nil) != (v.y == nil) {
				t.Fatalf("line %d: one has no %s", i+1, v.name)
			}
			if v.x != nil && math.Abs(*v.x-*v.y) > v.by*math.Abs(*v.x) {
				t.Errorf("line %d: %s %.9g, want %.9g: %.2g apart", i+1, v.name, *v.y, *v.x, math.Abs(*v.x-*v.y)/math.Abs(*v.x))
			}
		}
	}
}
