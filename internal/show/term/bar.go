package term

import (
	"fmt"
	"strings"
)

// The bounds of the gauge's columns.
const (
	gaugeMin = 10
	gaugeMax = 30
)

// Bar is a progress bar.
type Bar struct {
	Done, Total int
	Fields      []string // most important first; fields that do not fit are left out
}

// Render returns the bar as ASCII text of at most width columns.
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
