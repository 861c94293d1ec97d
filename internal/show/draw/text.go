package draw

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/scheduler"
)

// appendAction writes what scheduler.Action.String does, without memory of its own.
func appendAction(b []byte, a scheduler.Action) []byte {
	b = strconv.AppendInt(b, int64(a.Chunk), 10)
	b = append(b, a.Type.String()...)
	return strconv.AppendInt(b, int64(a.Microbatch), 10)
}

// appendLabel writes a box's short name: 0F3, a pair 0F5+7B3.
func appendLabel(b []byte, actions []scheduler.Action) []byte {
	for i, a := range actions {
		if i > 0 {
			b = append(b, '+')
		}
		b = appendAction(b, a)
	}
	return b
}

// typeName is a type in words.
func typeName(t scheduler.Type) string {
	switch t {
	case scheduler.F:
		return "forward"
	case scheduler.I:
		return "input gradient"
	case scheduler.W:
		return "weight gradient"
	}
	return "backward"
}

// describe says in a sentence what an action is and when it ran.
func (c *Chart) describe(a scheduler.Action, start, end float64) string {
	text := fmt.Sprintf("chunk %d %s of microbatch %d, %s–%s", a.Chunk, typeName(a.Type), a.Microbatch, number(start), number(end))
	if c.Unit != Units {
		text += " " + c.Unit
	}
	return text
}

// number writes a time for people: at most three digits after the point.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

func percent(fraction float64) string { return fmt.Sprintf("%.1f %%", 100*fraction) }

// headline is what every drawing says beneath its title.
func (c *Chart) headline(f Figures) []string {
	lines := []string{fmt.Sprintf("makespan %s %s", number(f.Makespan), c.Unit), "bubble " + percent(f.BubbleFraction)}
	for _, fact := range c.Facts {
		lines = append(lines, strings.TrimSpace(fact.Label+" "+fact.Value))
	}
	return lines
}

// escape makes a text fit for XML and HTML, also between quotes, and harmless to read.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(words.Harmless(s))) // a Builder takes everything
	return b.String()
}

// step returns the least of 1, 2, 5, 10, 20, 50, … times a power of ten that is at
// least v, for the marks of a time axis.
func step(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// buffered returns a writer that keeps the first error until Flush.
func buffered(w io.Writer) *bufio.Writer { return bufio.NewWriterSize(w, 1<<16) }
