package draw

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/scheduler"
)

// The sizes of a picture, in pixels.
const (
	margin      = 16
	titleHeight = 24 // height of the title
	lineHeight  = 18 // height of a line of text
	laneGap     = 4
	boxHeight   = 22
	pairHeight  = 28 // height of all boxes if some are pairs
	linkHeight  = 14 // height of the boxes of exchanges, below those of their rank
	axisHeight  = 34
	chartGap    = 28
	letterWidth = 0.64 // width of a letter relative to the font size
	largeFont   = 11   // font size of numbers in boxes
	smallFont   = 8.5
	textFont    = 12
	usualWidth  = 1180 // width of the time axis, if numbers need no more
	leastWidth  = 720  // smallest width of the picture
	readWidth   = 1000 // largest width of lines of text
	numberGap   = 5    // space beside a number
	widestBox   = 56   // largest width of a short action, which limits the scale of tiny charts
	tickGap     = 70   // smallest distance of ticks
)

// picture is the layout of SVG and of HTML for browsers without scripts.
type picture struct {
	charts        []Chart
	figures       []Figures
	actions       int                // of all charts
	scales        map[string]float64 // pixels per unit of time, by unit
	tops          []float64          // top of each chart
	left          float64            // position of time 0
	width, height float64
	chunks        int
	types         map[scheduler.Type]bool // the types that occur
	pairs         bool
	box, link     float64 // height of a box, and of one on the link below a lane; 0: there is no exchange
	pitch         float64 // distance of lanes
	gap           float64 // space between boxes; 0 if it would hide them
}

func newPicture(format string, charts []Chart) (*picture, error) {
	if err := checkAll(charts); err != nil {
		return nil, err
	}
	actions := 0
	for i := range charts {
		actions += charts[i].actions()
	}
	if actions > MaxBoxes {
		return nil, fmt.Errorf("%w: %s of %d actions, the limit is %d: use csv, json or perfetto instead",
			ErrTooLarge, format, actions, MaxBoxes)
	}
	p := &picture{charts: charts, actions: actions, scales: make(map[string]float64), types: make(map[scheduler.Type]bool), chunks: 1}
	names, tenth := 0, math.Inf(1)
	for i := range charts {
		c := &charts[i]
		p.figures = append(p.figures, c.Figures())
		p.take(c)
		if p.scales[c.Unit] == 0 {
			p.scales[c.Unit] = pixels(charts, c.Unit)
		}
		for r := range c.Lanes {
			names = max(names, utf8.RuneCountInString(shorten(c.Lanes[r].Name)))
		}
	}
	across := p.align()
	for unit, scale := range p.scales {
		tenth = min(tenth, measureTimes(charts, unit).tenth*scale)
	}
	p.gap = min(1, max(0, (tenth-1)/6))
	p.left = math.Round(margin + letterWidth*textFont*float64(names) + 12)
	p.width = max(leastWidth, math.Ceil(p.left+across+margin))
	p.box = boxHeight
	if p.pairs {
		p.box = pairHeight
	}
	p.pitch = p.box + p.link + laneGap
	y := float64(margin)
	for i := range charts {
		if i > 0 {
			y += chartGap
		}
		p.tops = append(p.tops, y+titleHeight+lineHeight*float64(len(p.lines(i)))+10)
		y = p.tops[i] + p.pitch*float64(len(charts[i].Lanes)) + axisHeight
	}
	p.height = y + p.legendHeight() + margin
	return p, nil
}

// align gives the charts of all units the same width, so that a plan in units can be compared with a run in
// milliseconds, and returns that width.
func (p *picture) align() float64 {
	longest := make(map[string]float64)
	across := 0.0
	for i := range p.charts {
		unit := p.charts[i].Unit
		longest[unit] = max(longest[unit], p.figures[i].Makespan)
		across = max(across, longest[unit]*p.scales[unit])
	}
	for unit, makespan := range longest {
		if makespan >= leastTime {
			p.scales[unit] = across / makespan
		}
	}
	return across
}

// take records the types, chunks and pairs of a chart.
func (p *picture) take(c *Chart) {
	for r := range c.Lanes {
		for _, a := range c.Lanes[r].Actions {
			p.types[a.Type] = true
			p.pairs = p.pairs || a.Overlap
			p.chunks = max(p.chunks, c.localChunk(a.Chunk)+1)
		}
		for _, x := range c.Lanes[r].Exchanges {
			p.types[x.Action.Type], p.link = true, linkHeight
		}
	}
}

// pixels chooses the scale of a unit so that almost every box has room for its number.
func pixels(charts []Chart, unit string) float64 {
	t := measureTimes(charts, unit)
	if t.makespan < leastTime {
		return 1
	}
	most := int32(0)
	for i := range charts {
		for r := range charts[i].Lanes {
			for _, a := range charts[i].Lanes[r].Actions {
				most = max(most, a.Microbatch)
			}
		}
	}
	tenth := max(t.tenth, t.makespan/maxPixels)
	need := numberWidth(most, largeFont) / tenth
	usual := min(usualWidth/t.makespan, widestBox/tenth)
	return min(max(need, usual), maxPixels/t.makespan)
}

// numberWidth returns the width of a microbatch's number with its margin.
func numberWidth(n int32, font float64) float64 {
	return letterWidth*font*float64(len(strconv.Itoa(int(n)))) + numberGap
}

// lines breaks a chart's headline into lines.
func (p *picture) lines(chart int) []string {
	const separator = "  ·  "
	room := int((min(p.width, readWidth) - 2*margin) / (letterWidth * textFont))
	var lines []string
	for i, part := range p.charts[chart].headline(p.figures[chart]) {
		if last := len(lines) - 1; i > 0 && len(lines[last])+len(separator)+len(part) <= room {
			lines[last] += separator + part
		} else {
			lines = append(lines, part)
		}
	}
	return lines
}

// scale returns the pixels per unit of time of a chart.
func (p *picture) scale(chart int) float64 { return p.scales[p.charts[chart].Unit] }

// swatch is an entry of the legend.
type swatch struct {
	text  string
	class []string // classes of its boxes
	x, y  float64
	width float64
}

const (
	swatchSize = 18
	swatchRow  = 26
)

// legend returns the entries of the legend, placed in rows.
func (p *picture) legend() []swatch {
	var entries []swatch
	n := shades(p.chunks)
	for t := scheduler.F; t <= scheduler.B; t++ {
		if !p.types[t] {
			continue
		}
		s := swatch{text: typeName(t)}
		for i := range n {
			s.class = append(s.class, fmt.Sprintf("%s%d", t, i))
		}
		if n > 1 {
			s.text += ", local chunk 0"
			if p.chunks == 2 {
				s.text += " and 1"
			} else {
				s.text += fmt.Sprintf(" to %d", p.chunks-1)
			}
		}
		entries = append(entries, s)
	}
	if p.pairs {
		entries = append(entries, swatch{text: "both halves run as one", class: []string{"pair"}})
	}
	for t := scheduler.FD; t <= scheduler.BC; t++ {
		if p.types[t] {
			entries = append(entries, swatch{text: fmt.Sprintf("%s, %s", t, typeName(t)), class: []string{t.String()}})
		}
	}
	if p.link > 0 {
		entries = append(entries, swatch{text: "below a rank: its tokens on the link"})
	}
	entries = append(entries,
		swatch{text: "idle", class: []string{"lane"}},
		swatch{text: "the number is the microbatch", class: nil})
	x, y := float64(margin), 0.0
	for i := range entries {
		e := &entries[i]
		e.width = swatchSize*float64(len(e.class)) + 6 + letterWidth*textFont*float64(len(e.text))
		if x+e.width > min(p.width, readWidth)-margin && x > margin {
			x, y = margin, y+swatchRow
		}
		e.x, e.y = x, y
		x += e.width + 14
	}
	return entries
}

func (p *picture) legendHeight() float64 {
	entries := p.legend()
	return entries[len(entries)-1].y + swatchRow
}
