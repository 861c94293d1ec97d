package chart

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
)

// size is the width and height of a curve's coordinates, which the page scales.
const size = 10_000

// plot holds the scales and lines of a picture.
type plot struct {
	chart *Chart
	lines []Line // the lines to draw
	x, y  scale
}

// scale maps values to positions in the picture, from 0 to 1.
type scale struct {
	low, high float64
	log       bool
}

func (s *scale) at(v float64) float64 {
	if s.log {
		return (math.Log(v) - math.Log(s.low)) / (math.Log(s.high) - math.Log(s.low))
	}
	return (v - s.low) / (s.high - s.low)
}

// most bounds values, so that no range overflows; least bounds them on a log scale.
const most, least = 1e250, 1e-250

// within reports whether numbers can be drawn.
func within(values ...float64) bool {
	for _, v := range values {
		if !(math.Abs(v) < most) { // nor NaN
			return false
		}
	}
	return true
}

// drawable reports whether a point can be drawn.
func (p *plot) drawable(pt *Point) bool {
	return within(pt.X, pt.Y, pt.Low, pt.High) && (!p.chart.Log || min(pt.Low, pt.Y, pt.High) > least)
}

func newPlot(c *Chart) *plot {
	p := &plot{chart: c, lines: c.Lines[:min(len(c.Lines), LimitLines)]}
	x, y := scale{math.Inf(1), math.Inf(-1), false}, scale{math.Inf(1), math.Inf(-1), c.Log}
	for i := range p.lines {
		for k := range p.lines[i].Points {
			pt := &p.lines[i].Points[k]
			if within(pt.X) {
				x.low, x.high = min(x.low, pt.X), max(x.high, pt.X)
			}
			if p.drawable(pt) {
				y.low, y.high = min(y.low, pt.Low, pt.Y, pt.High), max(y.high, pt.Low, pt.Y, pt.High)
			}
		}
	}
	zero := c.Zero && !c.Log && y.low <= y.high && y.low >= 0
	if zero {
		y.low = 0
	}
	p.x, p.y = x.opened(0), y.opened(0.04)
	if zero {
		p.y.low = 0
	}
	return p
}

// opened returns a scale of nonzero width with a margin at its ends.
func (s scale) opened(room float64) scale {
	span := s.high - s.low
	switch {
	case s.low > s.high: // it has no values
		return scale{1, 2, s.log}
	case span <= 1e-12*max(math.Abs(s.low), math.Abs(s.high)) || span < least:
		r := max(math.Abs(s.low)/10, 1e-9)
		if s.log {
			r = s.low / 2
		}
		return scale{s.low - r, s.high + r, s.log}
	case s.log:
		r := math.Exp(room * (math.Log(s.high) - math.Log(s.low)))
		return scale{s.low / r, s.high * r, true}
	}
	return scale{s.low - span*room, s.high + span*room, false}
}

// writeAxes draws the grid with its numbers in the page's font size.
func (p *plot) writeAxes(out *bufio.Writer) {
	for _, v := range p.y.ticks(5) {
		at := percent(1 - p.y.at(v))
		fmt.Fprintf(out, `<line class="grid" x1="0" x2="100%%" y1="%s" y2="%s"/><text x="-8" y="%s" dy="4" text-anchor="end">%s</text>`+"\n", at,
			at, at, number(v))
	}
	for _, v := range p.x.ticks(4) {
		at := p.x.at(v)
		anchor := "middle"
		switch {
		case at < 0.03:
			anchor = "start"
		case at > 0.97:
			anchor = "end"
		}
		fmt.Fprintf(out,
			`<line class="grid" x1="%[1]s" x2="%[1]s" y1="0" y2="100%%"/><text x="%[1]s" y="100%%" dy="18" text-anchor="%[2]s">%[3]s</text>`+"\n",
			percent(at), anchor, number(v))
	}
	fmt.Fprintf(out, `<text x="100%%" y="100%%" dy="32" text-anchor="end">%s</text>`+"\n", escape(p.chart.Across))
}

func (p *plot) writeCurves(out *bufio.Writer) {
	fmt.Fprintf(out, `<svg width="100%%" height="100%%" viewBox="0 0 %d %d" preserveAspectRatio="none">`+"\n", size, size)
	for i := range p.lines {
		p.writeLine(out, i)
	}
	fmt.Fprintln(out, "</svg>")
	for i := range p.lines {
		if !p.lines[i].Dots {
			continue
		}
		fmt.Fprintf(out, `<g class="l%d">`, i)
		for k := range p.lines[i].Points {
			if pt := &p.lines[i].Points[k]; p.drawable(pt) {
				fmt.Fprintf(out, `<circle class="dot" cx="%s" cy="%s" r="3"/>`, percent(p.x.at(pt.X)), percent(1-p.y.at(pt.Y)))
			}
		}
		fmt.Fprintln(out, "</g>")
	}
}

// writeLine draws a curve, with a band for the range of points that stand for several values.
func (p *plot) writeLine(out *bufio.Writer, i int) {
	points := p.lines[i].Points
	up := func(v float64) int { return int(math.Round(size * (1 - p.y.at(v)))) }
	across := func(k int) int { return int(math.Round(size * p.x.at(points[k].X))) }
	for from := 0; from < len(points); {
		to, band := from, false
		for ; to < len(points) && p.drawable(&points[to]); to++ {
			band = band || points[to].Low < points[to].High
		}
		if to == from { // a gap
			from++
			continue
		}
		if band && to-from > 1 {
			fmt.Fprintf(out, `<path class="band l%d" d="M`, i)
			for k := from; k < to; k++ {
				fmt.Fprintf(out, "%d %d ", across(k), up(points[k].High))
			}
			for k := to - 1; k >= from; k-- {
				fmt.Fprintf(out, "%d %d ", across(k), up(points[k].Low))
			}
			fmt.Fprintln(out, `Z"/>`)
		}
		fmt.Fprintf(out, `<path class="curve l%d" d="M`, i)
		for k := from; k < to; k++ {
			fmt.Fprintf(out, "%d %d ", across(k), up(points[k].Y))
		}
		if to-from == 1 { // a line of length 0 would be invisible
			fmt.Fprintf(out, "h%d", size/200)
		}
		fmt.Fprintln(out, `"/>`)
		from = to
	}
}

// writeMarks draws the events and the gaps.
func (p *plot) writeMarks(out *bufio.Writer) {
	drawn := 0
	for _, m := range p.chart.Marks {
		at := p.x.at(m.X)
		if !(at >= 0 && at <= 1) || drawn == LimitMarks {
			continue
		}
		drawn++
		says := escape(fmt.Sprintf("%s %s: %s", p.chart.Across, number(m.X), m.Text))
		if m.Sign == "" {
			fmt.Fprintf(out, `<line class="tick" x1="%[1]s" x2="%[1]s" y1="100%%" y2="97%%"><title>%[2]s</title></line>`+"\n", percent(at), says)
			continue
		}
		fmt.Fprintf(out,
			`<g><title>%s</title><line class="mark" x1="%[2]s" x2="%[2]s" y1="0" y2="100%%"/><text class="sign" x="%[2]s" y="0" dy="-4">%[3]s</text></g>`+"\n", says, percent(at), escape(m.Sign))
	}
	gone := 0
	for i := range p.lines {
		for k := range p.lines[i].Points {
			pt := &p.lines[i].Points[k]
			if !math.IsNaN(pt.Y) || !within(pt.X) || gone == LimitMarks {
				continue
			}
			gone++
			fmt.Fprintf(out, `<text class="sign" x="%s" y="100%%" dy="-6">×<title>%s</title></text>`+"\n", percent(p.x.at(pt.X)),
				escape(fmt.Sprintf("%s %s: %s is NaN or infinite", p.chart.Across, number(pt.X), p.lines[i].Name)))
		}
	}
}

// percent formats a position in the picture.
func percent(part float64) string {
	return strconv.FormatFloat(math.Round(part*1e4)/100, 'f', -1, 64) + "%"
}
