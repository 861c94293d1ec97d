package chart

import (
	"bufio"
	_ "embed" // the style
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"unicode"
)

// Style is the CSS that a page with charts must include.
//
//go:embed style.css
var Style string

// Chart is a figure of curves over one axis.
type Chart struct {
	ID     string // of letters, digits and dashes; unique in the page
	Title  string
	Across string // name of the X axis, such as "step"
	Unit   string // unit of the Y axis; may be empty
	Log    bool   // log scale on the Y axis: values of 0 and below are left out
	Zero   bool   // the Y axis begins at 0
	Lines  []Line // at most LimitLines are drawn
	Marks  []Mark
}

// Line is a curve.
type Line struct {
	Name   string
	Points []Point // sorted by X
	Dots   bool    // draw a dot at each point
}

// Point is a value, or the mean and the range of several values near X.
type Point struct{ X, Y, Low, High float64 }

// At returns the point of a single value. NaN is a gap, which the chart marks.
func At(x, y float64) Point { return Point{x, y, y, y} }

// Mark is an event. Without a Sign it is a tick on the X axis.
type Mark struct {
	X    float64
	Sign string // a letter above the chart; "": none
	Text string
}

// Write writes the figure: its title, its legend and its picture.
func (c *Chart) Write(w io.Writer) error {
	p := newPlot(c)
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<figure class="chart" id="%s"><figcaption><span>%s</span>`, c.ID, escape(c.heading()))
	for i := range p.lines {
		fmt.Fprintf(out,
			` <span class="key l%d"><svg width="30" height="10" aria-hidden="true"><line class="curve" x1="0" x2="30" y1="5" y2="5"/>`, i)
		if p.lines[i].Dots {
			fmt.Fprint(out, `<circle class="dot" cx="15" cy="5" r="3"/>`)
		}
		fmt.Fprintf(out, `</svg>%s</span>`, escape(p.lines[i].Name))
	}
	fmt.Fprintf(out, "</figcaption>\n"+
		`<svg class="plot" role="img" aria-labelledby="%[1]s-title %[1]s-says"><title id="%[1]s-title">%[2]s</title><desc id="%[1]s-says">%[3]s</desc>`+"\n",
		c.ID, escape(c.Title+" by "+c.Across), escape(c.says(p)))
	p.writeAxes(out)
	p.writeCurves(out)
	p.writeMarks(out)
	fmt.Fprint(out, "</svg></figure>\n")
	return out.Flush()
}

func (c *Chart) heading() string {
	text := c.Title
	if c.Unit != "" {
		text += ", " + c.Unit
	}
	if c.Log {
		text += " (log scale)"
	}
	return text
}

// says describes the picture in words.
func (c *Chart) says(p *plot) string {
	var parts []string
	for i := range p.lines {
		parts = append(parts, p.lines[i].says(c.Across))
	}
	if len(parts) == 0 {
		parts = append(parts, "No data.")
	}
	signs := 0
	for _, m := range c.Marks {
		if m.Sign != "" && signs < LimitMarks {
			signs++
			parts = append(parts, fmt.Sprintf("%s at %s %s.", m.Text, c.Across, number(m.X)))
		}
	}
	return strings.Join(parts, " ")
}

// says describes a line in words.
func (l *Line) says(across string) string {
	var first, last *Point
	low, high := math.Inf(1), math.Inf(-1)
	gone := 0
	for i := range l.Points {
		pt := &l.Points[i]
		if !finite(pt.Y) {
			gone++
			continue
		}
		if first == nil {
			first = pt
		}
		last = pt
		low, high = min(low, pt.Low), max(high, pt.High)
	}
	text := l.Name + ": no finite values"
	switch first {
	case nil:
	case last:
		text = fmt.Sprintf("%s: %s at %s %s", l.Name, number(first.Y), across, number(first.X))
	default:
		text = fmt.Sprintf("%s: from %s at %s %s to %s at %s, minimum %s, maximum %s", l.Name, number(first.Y), across, number(first.X),
			number(last.Y), number(last.X), number(low), number(high))
	}
	if gone > 0 {
		text += fmt.Sprintf("; NaN or infinite values: %d", gone)
	}
	return text + "."
}

// Spark writes a small picture of a line with a description in words.
func Spark(w io.Writer, l Line, across string) error {
	p := newPlot(&Chart{Lines: []Line{l}})
	out := bufio.NewWriter(w)
	fmt.Fprintf(out,
		`<svg class="spark l0" role="img" aria-label="%s" width="110" height="22" viewBox="0 0 %d %d" preserveAspectRatio="none">`,
		escape(l.says(across)), size, size)
	if len(p.lines) > 0 {
		p.writeLine(out, 0)
	}
	fmt.Fprint(out, "</svg>")
	return out.Flush()
}

// escape escapes text for an element or an attribute of a page.
func escape(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) || r == '\uFFFE' || r == '\uFFFF' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text))
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
