package draw

import (
	"math"
	"slices"
)

// times describes the boxes of all charts in one unit, to choose the scale of a drawing.
type times struct {
	makespan float64
	// common is the longest time of which all starts and ends are multiples; 0: there is none of useful size.
	common float64
	// The shortest duration of a box above 0, and the first decile and quartile.
	shortest, tenth, quartile float64
	lanes                     int // lanes of the largest chart
	boxes                     int // boxes of the fullest lane
	label                     int // length of the longest label
	exchanges                 bool
}

func measureTimes(charts []Chart, unit string) times {
	var t times
	var durations []float64
	isCommon := true
	var label []byte
	for i := range charts {
		c := &charts[i]
		if c.Unit != unit {
			continue
		}
		t.makespan = max(t.makespan, c.makespan())
		rows := c.rows()
		t.exchanges = t.exchanges || len(rows) > len(c.Lanes)
		t.lanes = max(t.lanes, len(rows))
		isCommon = isCommon && t.divide(c.Makespan)
		for _, row := range rows {
			boxes := 0
			for x := range row.boxes() {
				boxes++
				if d := x.end - x.start; d > 0 {
					durations = append(durations, d)
				}
				isCommon = isCommon && t.divide(x.start) && t.divide(x.end)
				label = appendLabel(label[:0], x.actions)
				t.label = max(t.label, len(label))
			}
			t.boxes = max(t.boxes, boxes)
		}
	}
	if !isCommon {
		t.common = 0
	}
	if slices.Sort(durations); len(durations) > 0 {
		t.shortest = durations[0]
		t.tenth = durations[len(durations)/10]
		t.quartile = durations[len(durations)/4]
	}
	return t
}

// divide makes common a divisor of a time with Euclid's algorithm, and reports whether it is still of useful size. It
// ignores floating-point rounding.
func (t *times) divide(v float64) bool {
	const rounding, tiny = 1e-9, 1e-7
	a, b := v, t.common
	for b > v*rounding {
		a, b = b, math.Mod(a, b)
		if a-b < v*rounding { // just below a multiple
			b = 0
		}
	}
	if a > 0 {
		t.common = a
	}
	return v*tiny < t.common || v == 0
}
