package history

import (
	"math"
	"slices"
	"sort"
)

// fan is the number of nodes or values below each node of the pyramid.
const fan = 16

// series holds the values of a metric and the rows that have them.
type series struct {
	first  uint32   // row of the first value if at is nil
	at     []uint32 // row of each value, ascending; nil: consecutive rows from first
	values []float64
	levels [][]node // the pyramid, of complete nodes only
}

// node summarizes consecutive values.
type node struct {
	least, most float64
	sum         float64
	numbers     int // number of finite values; the others are null in the file
}

// nothing is the node of no values.
var nothing = node{least: math.Inf(1), most: math.Inf(-1)}

func (n *node) add(v float64) {
	if math.IsNaN(v) {
		return
	}
	n.least, n.most = min(n.least, v), max(n.most, v)
	n.sum += v
	n.numbers++
}

func (n *node) join(o *node) {
	n.least, n.most = min(n.least, o.least), max(n.most, o.most)
	n.sum += o.sum
	n.numbers += o.numbers
}

// mean returns the mean of the finite values; NaN: there are none.
func (n *node) mean() float64 {
	if n.numbers == 0 {
		return math.NaN()
	}
	m := n.sum / float64(n.numbers)
	if math.IsNaN(m) { // the sum overflowed in both directions
		m = n.least/2 + n.most/2
	}
	return min(max(m, n.least), n.most) // after rounding or an overflow
}

// row returns the row of a value.
func (s *series) row(i int) uint32 {
	if s.at == nil {
		return s.first + uint32(i)
	}
	return s.at[i]
}

// since returns the first value of a row or of a later one.
func (s *series) since(row int) int {
	n := len(s.values)
	if s.at == nil {
		return min(max(row-int(s.first), 0), n)
	}
	return sort.Search(n, func(i int) bool { return int(s.at[i]) >= row })
}

// follows prepares for a value of a row after all present rows.
func (s *series) follows(row uint32) {
	n := len(s.values)
	switch {
	case n == 0:
		s.first, s.at = row, nil
	case s.at == nil && row != s.first+uint32(n):
		s.at = make([]uint32, n, max(2*n, cap(s.values)))
		for i := range s.at {
			s.at[i] = s.first + uint32(i)
		}
	}
}

// add appends a value. A second value of a row replaces the first.
func (s *series) add(row uint32, v float64) {
	if n := len(s.values); n > 0 && s.row(n-1) == row {
		s.values[n-1] = v
		return
	}
	s.follows(row)
	if s.at != nil {
		s.at = append(s.at, row)
	}
	s.values = append(s.values, v)
}

// join appends the values of another series, whose rows are counted from base.
func (s *series) join(o *series, base uint32) {
	if len(o.values) == 0 {
		return
	}
	s.follows(base + o.row(0))
	if s.at == nil && o.at != nil { // its first value follows, but its rows are not consecutive
		s.at = make([]uint32, len(s.values), len(s.values)+len(o.values))
		for i := range s.at {
			s.at[i] = s.first + uint32(i)
		}
	}
	if s.at != nil {
		for i := range o.values {
			s.at = append(s.at, base+o.row(i))
		}
	}
	s.values = append(s.values, o.values...)
	s.build()
}

// cut drops the values of a row and of later rows.
func (s *series) cut(row int) {
	n := s.since(row)
	s.values = s.values[:n]
	if s.at != nil {
		s.at = s.at[:n]
	}
	for k := range s.levels {
		n /= fan
		s.levels[k] = s.levels[k][:min(n, len(s.levels[k]))]
	}
}

// build completes the pyramid.
func (s *series) build() {
	for k := 0; ; k++ {
		below := len(s.values)
		if k > 0 {
			below = len(s.levels[k-1])
		}
		if below < fan {
			return
		}
		if k == len(s.levels) {
			s.levels = append(s.levels, nil)
		}
		for i := len(s.levels[k]); i < below/fan; i++ {
			n := nothing
			if k == 0 {
				for _, v := range s.values[i*fan : (i+1)*fan] {
					n.add(v)
				}
			} else {
				for j := i * fan; j < (i+1)*fan; j++ {
					n.join(&s.levels[k-1][j])
				}
			}
			s.levels[k] = append(s.levels[k], n)
		}
	}
}

// over returns the node over the values from one index up to another. It reads at most 2·fan nodes of each level.
func (s *series) over(from, to int) node {
	n := nothing
	for ; from < to && from%fan != 0; from++ {
		n.add(s.values[from])
	}
	for ; from < to && to%fan != 0; to-- {
		n.add(s.values[to-1])
	}
	for k := 0; from < to; k++ {
		from, to = from/fan, to/fan
		top := k == len(s.levels)-1
		for ; from < to && (top || from%fan != 0); from++ {
			n.join(&s.levels[k][from])
		}
		for ; from < to && to%fan != 0; to-- {
			n.join(&s.levels[k][to-1])
		}
	}
	return n
}

// grow reserves memory for n more values.
func (s *series) grow(n int) {
	s.values = slices.Grow(s.values, n)
	if s.at != nil {
		s.at = slices.Grow(s.at, n)
	}
}
