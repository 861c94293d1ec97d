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

// Style is what a page with charts has among its styles.
//
//go:embed style.css
var Style string

// Chart is some curves over one axis.
type Chart struct {
	ID     string // of letters, digits and dashes; no other chart of the page has it
	Title  string
	Across string // what goes across, such as "step"
	Unit   string // of what goes up; may be empty
	Log    bool   // values go up by their logarithm: those that are not above zero are left out
	Zero   bool   // what goes up begins at zero
	Lines  []Line // at most LimitLines are drawn
	Marks  []Mark
}

// Line is a curve.
type Line struct {
	Name   string
	Points []Point // by X
	Dots   bool    // each point has a dot: there are few
}

// Point is a value, or several of them near X: their mean and their ends.
type Point struct{ X, Y, Low, High float64 }

// At is the point of a single value. NaN is a gap, whose place is marked.
func At(x, y float64) Point { return Point{x, y, y, y} }

// Mark is something that happened. Without a Sign it is a tick below.
type Mark struct {
	X    float64
	Sign string // a letter above; "": none
	Text string
}

// Write writes the figure: its title, what each line is, and the picture.
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

// says puts the picture into words.
func (c *Chart) says(p *plot) string {
	var parts []string
	for i := range p.lines {
		parts = append(parts, p.lines[i].says(c.Across))
	}
	if len(parts) == 0 {
		parts = append(parts, "There are no figures.")
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

// says puts a line into words.
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
	text := l.Name + ": no number"
	switch first {
	case nil:
	case last:
		text = fmt.Sprintf("%s: %s at %s %s", l.Name, number(first.Y), across, number(first.X))
	default:
		text = fmt.Sprintf("%s: from %s at %s %s to %s at %s, between %s and %s", l.Name, number(first.Y), across, number(first.X),
			number(last.Y), number(last.X), number(low), number(high))
	}
	if gone > 0 {
		text += fmt.Sprintf("; %d of its points are no numbers", gone)
	}
	return text + "."
}

// Spark writes a small picture of a line, which says in words what it shows.
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

// escape makes text fit to stand in a page, in an element or an attribute.
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
