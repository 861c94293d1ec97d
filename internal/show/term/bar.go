package term

import (
	"fmt"
	"strings"
)

// The gauge has a number of columns: at least, so that it can be told from
// text, and at most, since a longer one says no more.
const (
	gaugeMin = 10
	gaugeMax = 30
)

// Bar is a line of progress.
type Bar struct {
	Done, Total int
	Fields      []string // the most important first: those that don't fit are left out
}

// Render draws the bar in at most width columns, all ASCII.
func (b Bar) Render(width int) string {
	total := max(b.Total, 1)
	done := min(max(b.Done, 0), total)
	head := fmt.Sprintf("%*d/%d", len(fmt.Sprint(b.Total)), b.Done, b.Total)
	if len(head) > width {
		return head[:max(width, 0)]
	}
	left := width - len(head)
	gauge := left >= gaugeMin+len(" []")
	if gauge {
		left -= gaugeMin + len(" []")
	}
	var fields strings.Builder
	for _, f := range b.Fields {
		if fields.Len()+2+len(f) > left {
			break
		}
		fields.WriteString("  " + f)
	}
	if !gauge {
		return head + fields.String()
	}
	size := min(gaugeMin+left-fields.Len(), gaugeMax)
	filled := int(int64(size) * int64(done) / int64(total))
	drawn := strings.Repeat("=", filled) + strings.Repeat(" ", size-filled)
	if 0 < filled && filled < size {
		drawn = drawn[:filled-1] + ">" + drawn[filled:]
	}
	return head + " [" + drawn + "]" + fields.String()
}
