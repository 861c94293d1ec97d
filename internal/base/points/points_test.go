package points_test

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/points"
)

func TestAt(t *testing.T) {
	all := [][2]float64{{10, 1}, {20, 3}, {40, 0}}
	for step, want := range map[float64]float64{1: 1, 10: 1, 15: 2, 20: 3, 30: 1.5, 40: 0, 1000: 0} {
		if got := points.At(all, step); got != want {
			t.Errorf("the rate of step %g is %g, want %g", step, got, want)
		}
	}
	if p, l := points.Peak(all), points.Least(all); p != 3 || l != 0 {
		t.Errorf("the peak is %g and the least rate %g", p, l)
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		all  [][2]float64
		want string
	}{
		"good":        {[][2]float64{{1, 0}, {2, 1}}, ""},
		"none":        {nil, "there are no points"},
		"a half step": {[][2]float64{{1.5, 1}}, "point 1 has the step 1.5: use whole steps from 1 to 100"},
		"step 0":      {[][2]float64{{0, 1}}, "point 1 has the step 0: use whole steps from 1 to 100"},
		"a late step": {[][2]float64{{1, 1}, {101, 1}}, "point 2 has the step 101: use whole steps from 1 to 100"},
		"descending":  {[][2]float64{{5, 1}, {5, 2}}, "point 2 has the step 5 after step 5: give the points in the order of their steps"},
		"negative":    {[][2]float64{{5, -1}}, "point 1 has the rate -1: use 0 to 9"},
		"no number":   {[][2]float64{{5, math.NaN()}}, "point 1 has the rate NaN: use 0 to 9"},
		"zeros":       {[][2]float64{{1, 0}, {2, 0}}, "all rates are 0: give at least one above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := points.Check(c.all, 100, 9); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("error %q, want %q", got, c.want)
			}
		})
	}
	if points.Check(make([][2]float64, points.Most+1), 100, 9) == nil {
		t.Error("there may be any number of points")
	}
}

// TestText: a text has the points to the last bit, and any other text is an error and no panic.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all [][2]float64
		step := 0.0
		for range rapid.IntRange(0, points.Most).Draw(t, "points") {
			step += float64(rapid.IntRange(1, 1000).Draw(t, "step"))
			all = append(all, [2]float64{step, rapid.Float64Range(1e-300, 1e6).Draw(t, "rate")})
		}
		got, err := points.Parse(points.Format(all))
		if err != nil || !reflect.DeepEqual(got, all) {
			t.Fatalf("%v, error %v, want %v", got, err, all)
		}
		if any, err := points.Parse(rapid.StringMatching(`[0-9:. eInfNa-]{0,40}`).Draw(t, "text")); err == nil && len(any) > 0 &&
			points.Check(any, math.MaxInt32, math.MaxFloat64) != nil {
			t.Fatalf("%v is read", any)
		}
	})
}
