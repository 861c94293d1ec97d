package history

import (
	"fmt"
	"math"
	"sort"
)

// Axis is the X axis of a curve.
type Axis int

// The axes.
const (
	BySteps   Axis = iota
	ByTokens       // the maximum of tokens up to the row
	BySeconds      // the sum of step_ms up to the end of the row
)

var axisNames = [...]string{"steps", "tokens", "seconds"}

func (a Axis) String() string {
	if a < 0 || int(a) >= len(axisNames) {
		return fmt.Sprintf("Axis(%d)", int(a))
	}
	return axisNames[a]
}

// Bucket summarizes a series over a part of an axis.
type Bucket struct {
	Step           int     // of the last value
	X              float64 // of the last value
	Min, Max, Mean float64 // over the finite values; NaN: there are none
	Last           float64 // NaN if it is null in the file
	N              int     // number of values
	Nulls          int     // values that are null in the file: NaN or infinite
}

// x returns the position of a row on an axis. It never decreases from row to row.
func (t *table) x(by Axis, row int) float64 {
	switch by {
	case ByTokens:
		return float64(t.tokens[row])
	case BySeconds:
		return t.seconds[row]
	}
	return float64(t.steps[row])
}

// Series returns a series between two positions of an axis, both included, in buckets of equal width. If there are no
// more values than buckets, each value has its own bucket. Parts without values have no bucket. Infinity or NaN
// stands for an end of the run.
func (h *History) Series(name string, by Axis, from, to float64, buckets int) []Bucket {
	h.mu.RLock()
	defer h.mu.RUnlock()
	t := h.rows
	s, rows := t.named(name), len(t.steps)
	if s == nil || rows == 0 || buckets < 1 {
		return nil
	}
	buckets = min(buckets, LimitBuckets)
	if !(from > t.x(by, 0)) {
		from = t.x(by, 0)
	}
	if !(to < t.x(by, rows-1)) {
		to = t.x(by, rows-1)
	}
	behind := func(x float64) int { // the first row after a position
		return sort.Search(rows, func(row int) bool { return t.x(by, row) > x })
	}
	at := func(x float64) int { // the first row at a position or after it
		return sort.Search(rows, func(row int) bool { return t.x(by, row) >= x })
	}
	first, end := s.since(at(from)), s.since(behind(to))
	if first >= end {
		return nil
	}
	if end-first <= buckets {
		all := make([]Bucket, 0, end-first)
		for i := first; i < end; i++ {
			all = append(all, t.bucket(s, by, i, i+1))
		}
		return all
	}
	all := make([]Bucket, 0, buckets)
	for k := 1; k <= buckets && first < end; k++ {
		next := end
		if k < buckets {
			next = min(max(s.since(at(from+(to-from)*(float64(k)/float64(buckets)))), first), end)
		}
		if next > first {
			all = append(all, t.bucket(s, by, first, next))
		}
		first = next
	}
	return all
}

// bucket returns the bucket over the values from one index up to another.
func (t *table) bucket(s *series, by Axis, from, to int) Bucket {
	n := s.over(from, to)
	row := int(s.row(to - 1))
	b := Bucket{
		Step: t.steps[row], X: t.x(by, row), Min: n.least, Max: n.most, Mean: n.mean(),
		Last: s.values[to-1], N: to - from, Nulls: to - from - n.numbers,
	}
	if n.numbers == 0 {
		b.Min, b.Max = math.NaN(), math.NaN()
	}
	return b
}
