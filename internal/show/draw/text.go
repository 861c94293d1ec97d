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

// appendAction appends the result of scheduler.Action.String without allocating memory.
func appendAction(b []byte, a scheduler.Action) []byte {
	b = strconv.AppendInt(b, int64(a.Chunk), 10)
	b = append(b, a.Type.String()...)
	b = strconv.AppendInt(b, int64(a.Microbatch), 10)
	if a.Part > 0 {
		b = strconv.AppendUint(append(b, '.'), uint64(a.Part), 10)
	}
	return b
}

// appendLabel appends a box's short name: 0F3, or 0F5+7B3 for a pair.
func appendLabel(b []byte, actions []scheduler.Action) []byte {
	for i, a := range actions {
		if i > 0 {
			b = append(b, '+')
		}
		b = appendAction(b, a)
	}
	return b
}

// typeName returns a type in words.
func typeName(t scheduler.Type) string {
	switch t {
	case scheduler.F:
		return "forward"
	case scheduler.I:
		return "input gradient"
	case scheduler.W:
		return "weight gradient"
	case scheduler.FD:
		return "dispatch of a forward"
	case scheduler.FC:
		return "combine of a forward"
	case scheduler.BD:
		return "dispatch of a backward"
	case scheduler.BC:
		return "combine of a backward"
	}
	return "backward"
}

// describe describes an action and its times.
func (c *Chart) describe(a scheduler.Action, start, end float64) string {
	of := "of microbatch"
	switch {
	case a.Type.IsExchange():
		of = fmt.Sprintf("after part %d, microbatch", a.Part)
	case a.Part > 0:
		of = fmt.Sprintf("part %d, microbatch", a.Part)
	}
	text := fmt.Sprintf("chunk %d %s %s %d, %s–%s", a.Chunk, typeName(a.Type), of, a.Microbatch, number(start), number(end))
	if c.Unit != Units {
		text += " " + c.Unit
	}
	return text
}

// number formats a time with at most three decimals.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

func percent(fraction float64) string { return fmt.Sprintf("%.1f %%", 100*fraction) }

// headline returns the lines below the title of a drawing.
func (c *Chart) headline(f Figures) []string {
	lines := []string{fmt.Sprintf("makespan %s %s", number(f.Makespan), c.Unit), "bubble " + percent(f.BubbleFraction)}
	if f.Exchange > 0 {
		lines = append(lines, fmt.Sprintf("exchange of tokens %s %s a rank, %s hidden", number(f.Exchange/float64(len(c.Lanes))), c.Unit,
			percent(f.Hidden/f.Exchange)))
	}
	for _, fact := range c.Facts {
		lines = append(lines, strings.TrimSpace(fact.Label+" "+fact.Value))
	}
	return lines
}

// escape escapes a text for XML and HTML, also in attributes, and replaces control characters.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(words.Harmless(s))) // a Builder takes everything
	return b.String()
}

// step returns the smallest 1, 2 or 5 times a power of ten that is at least v, for the ticks of a time axis.
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
