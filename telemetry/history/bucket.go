package history

import (
	"fmt"
	"math"
	"sort"
)

// Axis is what a curve goes along.
type Axis int

// The axes.
const (
	BySteps   Axis = iota
	ByTokens       // the most of any row up to this one
	BySeconds      // the sum of step_ms up to the end of this row
)

var axisNames = [...]string{"steps", "tokens", "seconds"}

func (a Axis) String() string {
	if a < 0 || int(a) >= len(axisNames) {
		return fmt.Sprintf("Axis(%d)", int(a))
	}
	return axisNames[a]
}

// Bucket is what a series does over a part of an axis.
type Bucket struct {
	Step           int     // of the last value
	X              float64 // of the last value
	Min, Max, Mean float64 // of the values that are numbers; NaN: none is
	Last           float64 // NaN: it is null in the file
	N              int     // of the values
	Nulls          int     // of these, those that are null in the file: NaN, or infinite
}

// x is where a row lies on an axis. It never falls from row to row.
func (t *table) x(by Axis, row int) float64 {
	switch by {
	case ByTokens:
		return float64(t.tokens[row])
	case BySeconds:
		return t.seconds[row]
	}
	return float64(t.steps[row])
}

// Series is a series between two places of an axis, both included, in buckets of equal width. Where
// there are not more values than buckets, each value is a bucket of its own; a part without any
// value has none. Infinities, or NaN, stand for the ends of the run.
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
	behind := func(x float64) int { // the first row behind a place
		return sort.Search(rows, func(row int) bool { return t.x(by, row) > x })
	}
	at := func(x float64) int { // the first row at a place or behind it
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

// bucket is one over the values from one place up to another.
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
