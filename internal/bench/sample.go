package bench

import (
	"context"
	"slices"
	"time"
)

// Summary is the median of several samples, with their 10th and 90th percentiles.
type Summary struct {
	Median  float64 `json:"median"`
	P10     float64 `json:"p10"`
	P90     float64 `json:"p90"`
	Samples int     `json:"samples"`
}

// summarize sorts the samples.
func summarize(samples []float64) Summary {
	slices.Sort(samples)
	return Summary{quantile(samples, 0.5), quantile(samples, 0.1), quantile(samples, 0.9), len(samples)}
}

// quantile interpolates between the sorted samples.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	j := min(i+1, len(sorted)-1)
	return sorted[i] + (at-float64(i))*(sorted[j]-sorted[i])
}

// per converts times to rates: amount divided by each.
func (s Summary) per(amount float64) Summary {
	return Summary{amount / s.Median, amount / s.P90, amount / s.P10, s.Samples}
}

// leastSamples is the minimum number of samples of a measurement, whatever their duration.
const leastSamples = 3

// sample times functions in turn, round after round, for the given seconds. It returns each function's time of one repetition in
// milliseconds. A function does its work n times. Two calls before the first round allocate its memory. Then n is chosen so
// that a sample takes at least the time least; it is chosen again if one repetition is so short that starting it dominates.
func sample(ctx context.Context, seconds float64, least time.Duration, work ...func(n int) (time.Duration, error)) ([]Summary, error) {
	repeat := make([]int, len(work))
	for i, do := range work {
		if _, err := do(1); err != nil {
			return nil, err
		}
		took, err := do(1)
		if err != nil {
			return nil, err
		}
		if repeat[i] = repeats(least, took); repeat[i] == 1 {
			continue
		}
		if took, err = do(repeat[i]); err != nil {
			return nil, err
		}
		repeat[i] = max(repeat[i], repeats(least, took/time.Duration(repeat[i])))
	}
	times := make([][]float64, len(work))
	began := time.Now()
	for len(times[0]) < leastSamples || time.Since(began).Seconds() < seconds {
		for i, do := range work {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, err := do(repeat[i])
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], milliseconds(took)/float64(repeat[i]))
		}
	}
	out := make([]Summary, len(work))
	for i := range times {
		out[i] = summarize(times[i])
	}
	return out, nil
}

// repeats returns how many repetitions of the given duration take at least the time least.
func repeats(least, took time.Duration) int {
	return 1 + min(int(least/max(took, time.Nanosecond)), maxRepeat-1)
}

// maxRepeat bounds the repetitions in a sample.
const maxRepeat = 10_000

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
