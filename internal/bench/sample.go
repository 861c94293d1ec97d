package bench

import (
	"context"
	"slices"
	"time"
)

// Summary is a figure taken several times: the median, and the values that a
// tenth of the samples are below and above.
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

// per turns times into a rate: amount divided by each.
func (s Summary) per(amount float64) Summary {
	return Summary{amount / s.Median, amount / s.P90, amount / s.P10, s.Samples}
}

// Every measurement has this number of samples at least, however long one takes.
const leastSamples = 3

// sample times functions in turn, round after round, until the seconds are over,
// and returns the time of one repetition in milliseconds for each. Each function
// does its work n times. It is called twice before, so that memory is in place;
// then n is chosen so that a sample takes the least time, and once more where one
// repetition alone spends most of its time on being started.
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

// repeats is how many repetitions of some length take the least time.
func repeats(least, took time.Duration) int {
	return 1 + min(int(least/max(took, time.Nanosecond)), maxRepeat-1)
}

// maxRepeat bounds the repetitions in a sample.
const maxRepeat = 10_000

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
