package view

import (
	"fmt"
	"math"
	"strings"
)

// series holds the values of a metric by step, averaged if there are many.
type series struct {
	points []point
	every  int // number of values that a point averages
}

type point struct {
	step  float64
	value float64
	n     int
}

func (s *series) add(step int, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	s.every = max(1, s.every)
	if n := len(s.points); n > 0 && s.points[n-1].n < s.every {
		s.points[n-1].take(point{float64(step), value, 1})
		return
	}
	if len(s.points) >= maxPoints {
		half := s.points[:0]
		for i := 0; i+1 < len(s.points); i += 2 {
			p := s.points[i]
			p.take(s.points[i+1])
			half = append(half, p)
		}
		s.points = half
		s.every *= 2
	}
	s.points = append(s.points, point{float64(step), value, 1})
}

// take merges another point into the mean.
func (p *point) take(q point) {
	n := float64(p.n + q.n)
	p.step = (p.step*float64(p.n) + q.step*float64(q.n)) / n
	p.value = (p.value*float64(p.n) + q.value*float64(q.n)) / n
	p.n += q.n
}

// labelWidth is the width of the values beside a curve.
const labelWidth = 9

// curve draws the loss, and the validation loss as marks on it, in a number of rows and one more for the steps.
func (v *View) curve(width, height int) []string {
	columns := width - labelWidth
	if columns < 10 || height < 2 || len(v.loss.points) < 2 {
		return nil
	}
	low, high := math.Inf(1), math.Inf(-1)
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range [][]point{v.loss.points, v.vals.points} {
		for _, p := range s {
			low, high = min(low, p.value), max(high, p.value)
			first, last = min(first, p.step), max(last, p.step)
		}
	}
	if !(high > low) {
		high = low + 1e-9
	}
	dotsX, dotsY := 1, 1
	if v.o.Unicode {
		dotsX, dotsY = 2, 4
	}
	place := func(p point, w, h int) (x, y int) {
		x = int((p.step - first) / max(last-first, 1) * float64(w-1))
		y = int(math.Round((high - p.value) / (high - low) * float64(h-1)))
		return x, y
	}
	// The mean of the values of each column of dots.
	sum := make([]point, columns*dotsX)
	for _, p := range v.loss.points {
		x, _ := place(p, len(sum), 1)
		sum[x].take(p)
	}
	cells := make([][]rune, height)
	for y := range cells {
		cells[y] = []rune(strings.Repeat(" ", columns))
	}
	join(sum)
	before := -1
	for x, p := range sum {
		if p.n == 0 {
			continue
		}
		_, y := place(p, 1, height*dotsY)
		for _, at := range between(before, y, v.o.Unicode) {
			cell := &cells[at/dotsY][x/dotsX]
			if !v.o.Unicode {
				*cell = '*'
				continue
			}
			if *cell == ' ' {
				*cell = 0x2800
			}
			*cell |= braille[at%4][x%2]
		}
		before = y
	}
	for _, p := range v.vals.points {
		x, y := place(p, columns, height)
		cells[y][x] = 'o'
	}
	lines := make([]string, height, height+1)
	for y := range lines {
		label := ""
		switch y {
		case 0:
			label = fmt.Sprintf("%.4g", high)
		case height - 1:
			label = fmt.Sprintf("%.4g", low)
		}
		lines[y] = fmt.Sprintf("%*s ", labelWidth-1, label) + strings.TrimRight(string(cells[y]), " ")
	}
	from, to := fmt.Sprintf("step %.0f", first), fmt.Sprintf("%.0f", last)
	return append(lines, strings.Repeat(" ", labelWidth)+from+fmt.Sprintf("%*s", max(0, columns-len(from)), to))
}

// join interpolates the missing points.
func join(points []point) {
	before := -1
	for x, p := range points {
		if p.n == 0 {
			continue
		}
		for i := before + 1; before >= 0 && i < x; i++ {
			part := float64(i-before) / float64(x-before)
			points[i] = point{0, points[before].value + part*(p.value-points[before].value), 1}
		}
		before = x
	}
}

// braille are the dots of a character by row and column.
var braille = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// between returns the rows between two neighboring dots, so that a steep curve has no holes.
func between(from, to int, join bool) []int {
	rows := []int{to}
	if !join || from < 0 {
		return rows
	}
	for y := from; y != to; {
		if y < to {
			y++
		} else {
			y--
		}
		if y != to {
			rows = append(rows, y)
		}
	}
	return rows
}
