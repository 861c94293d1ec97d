package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    Summary
	}{
		{nil, Summary{}},
		{[]float64{7}, Summary{7, 7, 7, 1}},
		{[]float64{3, 1}, Summary{2, 1.2, 2.8, 2}},
		{[]float64{10, 0, 5, 1, 2, 3, 4, 6, 7, 8, 9}, Summary{5, 1, 9, 11}},
	} {
		if got := summarize(slices.Clone(c.samples)); got != c.want {
			t.Errorf("summarize(%v) = %v, want %v", c.samples, got, c.want)
		}
	}
}

// A rate is high where the time is short.
func TestPer(t *testing.T) {
	got := Summary{Median: 2, P10: 1, P90: 4, Samples: 3}.per(8)
	if want := (Summary{Median: 4, P10: 2, P90: 8, Samples: 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestQuantileIsBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 50).Draw(t, "samples")
		s := summarize(samples)
		if low, high := slices.Min(samples), slices.Max(samples); low > s.P10 || s.P10 > s.Median || s.Median > s.P90 || s.P90 > high {
			t.Errorf("%v of %v", s, samples)
		}
	})
}

// Every function is sampled equally often, in turn, and at least leastSamples
// times.
func TestSampleTakesTurns(t *testing.T) {
	var turns []string
	work := func(name string, took time.Duration) func(int) (time.Duration, error) {
		return func(n int) (time.Duration, error) {
			turns = append(turns, name)
			return time.Duration(n) * took, nil
		}
	}
	got, err := sample(t.Context(), 1e-9, 10*time.Millisecond, work("a", time.Millisecond), work("b", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "a", "a", "b", "b", "a", "b", "a", "b", "a", "b"}; !slices.Equal(turns, want) {
		t.Errorf("the turns are %v, want %v", turns, want)
	}
	for i, ms := range []float64{1, 3.6e6} {
		if want := (Summary{ms, ms, ms, leastSamples}); got[i] != want {
			t.Errorf("function %d: %v, want %v", i, got[i], want)
		}
	}
}

func TestSampleFails(t *testing.T) {
	broken := errors.New("broken")
	for at := range 5 {
		calls := 0
		_, err := sample(t.Context(), 1e-9, time.Millisecond, func(int) (time.Duration, error) {
			if calls++; calls > at {
				return 0, broken
			}
			return time.Second, nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("at call %d: %v", at, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sample(ended, 1, time.Millisecond, func(int) (time.Duration, error) { return 1, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
