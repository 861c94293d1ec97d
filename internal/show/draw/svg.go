package draw

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

// SVG writes charts as one complete picture: a lane for each rank, and a box for each action with the number of its
// microbatch. The two actions of a pair are drawn one above the other. Exchanges of tokens have boxes of their own below
// the rank, on its link. Colors show types, lightness shows chunks, and
// each box has a tooltip. The picture is as wide as its numbers need; if that is too wide for viewers, the shortest
// boxes have no number.
//
// It fails with ErrTooLarge above MaxBoxes actions.
func SVG(w io.Writer, charts ...Chart) error {
	p, err := newPicture("svg", charts)
	if err != nil {
		return err
	}
	out := buffered(w)
	fmt.Fprintln(out, `<?xml version="1.0" encoding="UTF-8"?>`)
	p.write(out)
	return out.Flush()
}

// write writes the svg element.
func (p *picture) write(out *bufio.Writer) {
	fmt.Fprintf(out,
		`<svg xmlns="http://www.w3.org/2000/svg" class="timeline" width="%s" height="%s" viewBox="0 0 %s %s" role="img" aria-labelledby="timeline-title timeline-figures" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="%d">`+"\n",
		px(p.width), px(p.height), px(p.width), px(p.height), textFont)
	var titles, figures []string
	for i := range p.charts {
		titles = append(titles, p.charts[i].Title)
		figures = append(figures, strings.Join(p.charts[i].headline(p.figures[i]), ", "))
	}
	fmt.Fprintf(out, "<title id=\"timeline-title\">%s</title>\n", escape("Timeline: "+strings.Join(titles, "; ")))
	fmt.Fprintf(out, "<desc id=\"timeline-figures\">%s</desc>\n", escape(strings.Join(figures, "; ")))
	p.writeStyle(out)
	fmt.Fprintln(out, `<rect class="page" width="100%" height="100%"/>`)
	for i := range p.charts {
		p.writeChart(out, i)
	}
	p.writeLegend(out)
	fmt.Fprintln(out, "</svg>")
}

func (p *picture) writeStyle(out *bufio.Writer) {
	fmt.Fprintln(out, "<style>")
	fmt.Fprint(out, ".page{fill:#fff}.ink{fill:#1b1f24}.faint{fill:#57606a}.lane{fill:#eceff2}\n")
	fmt.Fprint(out, ".rule{stroke:#c4cad1;fill:none}.a{stroke:#fff;vector-effect:non-scaling-stroke}\n")
	fmt.Fprintf(out, ".rank .a{stroke-width:%s}\n", px(p.gap))
	fmt.Fprintf(out, ".n{fill:%s;text-anchor:middle;pointer-events:none;font-size:%dpx}.n.s{font-size:%vpx}\n", ink, largeFont, smallFont)
	n := shades(p.chunks)
	for t := scheduler.F; t <= scheduler.B; t++ {
		for i := 0; p.types[t] && i < n; i++ {
			fmt.Fprintf(out, ".%s%d{fill:%s}", t, i, ramps[t].fill(i, n))
		}
	}
	for t := scheduler.FD; t <= scheduler.BC; t++ {
		if p.types[t] {
			fmt.Fprintf(out, ".%s{fill:%s}", t, exchangeColours[t])
		}
	}
	fmt.Fprintln(out, "\n</style>")
}

func (p *picture) writeChart(out *bufio.Writer, i int) {
	c, top, scale := &p.charts[i], p.tops[i], p.scale(i)
	across := p.figures[i].Makespan * scale
	bottom := p.pitch * float64(len(c.Lanes))

	y := top - 10 - lineHeight*float64(len(p.lines(i))) - titleHeight
	fmt.Fprintf(out, `<g class="head"><text class="ink" x="%d" y="%s" font-size="16" font-weight="600">%s</text>`, margin, px(y+16),
		escape(c.Title))
	for k, line := range p.lines(i) {
		fmt.Fprintf(out, `<text class="faint" x="%d" y="%s">%s</text>`, margin, px(y+titleHeight+lineHeight*float64(k)+13), escape(line))
	}
	fmt.Fprintln(out, "</g>")

	fmt.Fprintf(out, `<g class="chart" transform="translate(%s,%s)" data-scale="%s">`+"\n", px(p.left), px(top), exact(scale))
	fmt.Fprintln(out, `<g class="zoom">`)
	for r := range c.Lanes {
		p.writeLane(out, c, r, scale, across)
	}
	fmt.Fprintln(out, `</g>`)
	fmt.Fprintln(out, `<g class="numbers">`)
	for r := range c.Lanes {
		p.writeNumbers(out, &c.Lanes[r], r, scale)
	}
	fmt.Fprintln(out, `</g>`)
	writeAxis(out, scale, across, bottom)

	fmt.Fprintf(out, `<g class="names"><rect class="page" x="%s" y="-4" width="%s" height="%s"/>`, px(-p.left), px(p.left-4),
		px(bottom+axisHeight-6))
	for r := range c.Lanes {
		f := &p.figures[i]
		fmt.Fprintf(out, "\n"+`<text class="ink" x="-10" y="%s" text-anchor="end">%s<title>%s</title></text>`,
			px(p.pitch*float64(r)+p.box/2+4), escape(shorten(c.Lanes[r].Name)),
			escape(fmt.Sprintf("busy %s %s, idle %s, peak in flight %d", number(f.Busy[r]), c.Unit, number(f.Idle[r]), f.PeakInFlight[r])))
	}
	fmt.Fprintf(out, "\n"+`<text class="faint" x="-10" y="%s" font-size="11" text-anchor="end">%s</text>`, px(bottom+17), escape(c.Unit))
	fmt.Fprintln(out, "\n</g>\n</g>")
}

// writeLane draws the boxes of a rank over its idle time.
func (p *picture) writeLane(out *bufio.Writer, c *Chart, r int, scale, across float64) {
	l := &c.Lanes[r]
	top := p.pitch * float64(r)
	fmt.Fprintf(out, `<g class="rank"><rect class="lane" y="%s" width="%s" height="%s"/>`+"\n", px(top), px(across), px(p.box))
	for x := range l.boxes() {
		left, right := x.start*scale, x.end*scale
		height := p.box / float64(len(x.actions))
		for k, a := range x.actions {
			fmt.Fprintf(out, `<rect class="a %s%d" x="%s" y="%s" width="%s" height="%s" data-a="%s"><title>%s</title></rect>`+"\n",
				a.Type, shade(c.localChunk(a.Chunk), p.chunks), px(left), px(top+height*float64(k)), px(right-left), px(height), a,
				escape(c.describe(a, x.start, x.end)))
		}
	}
	if p.link > 0 {
		p.writeLink(out, c, r, scale, across)
	}
	fmt.Fprintln(out, "</g>")
}

// writeLink draws the exchanges of a rank below its boxes.
func (p *picture) writeLink(out *bufio.Writer, c *Chart, r int, scale, across float64) {
	top := p.pitch*float64(r) + p.box
	fmt.Fprintf(out, `<rect class="lane" y="%s" width="%s" height="%s"/>`+"\n", px(top+1), px(across), px(p.link-1))
	for _, x := range c.Lanes[r].Exchanges {
		fmt.Fprintf(out, `<rect class="a %s" x="%s" y="%s" width="%s" height="%s" data-a="%s"><title>%s</title></rect>`+"\n",
			x.Action.Type, px(x.Start*scale), px(top+1), px((x.End-x.Start)*scale), px(p.link-1), x.Action,
			escape(c.describe(x.Action, x.Start, x.End)))
	}
}

// writeNumbers writes the microbatches into boxes with enough room.
func (p *picture) writeNumbers(out *bufio.Writer, l *Lane, r int, scale float64) {
	for x := range l.boxes() {
		room := (x.end - x.start) * scale
		height := p.box / float64(len(x.actions))
		for k, a := range x.actions {
			class, font := "n", float64(largeFont)
			if room < numberWidth(a.Microbatch, largeFont) || height < largeFont {
				class, font = "n s", smallFont
			}
			if room < numberWidth(a.Microbatch, font) {
				continue
			}
			y := p.pitch*float64(r) + height*(float64(k)+0.5) + 0.36*font
			fmt.Fprintf(out, `<text class="%s" x="%s" y="%s">%d</text>`, class, px((x.start+x.end)/2*scale), px(y), a.Microbatch)
		}
	}
	for _, x := range l.Exchanges {
		label := fmt.Sprintf("%s%d", x.Action.Type, x.Action.Microbatch)
		if (x.End-x.Start)*scale < letterWidth*smallFont*float64(len(label))+2 {
			continue
		}
		y := p.pitch*float64(r) + p.box + p.link/2 + 0.5 + 0.36*smallFont
		fmt.Fprintf(out, `<text class="n s" x="%s" y="%s">%s</text>`, px((x.Start+x.End)/2*scale), px(y), label)
	}
	fmt.Fprintln(out)
}

// writeAxis draws the time axis below the lanes.
func writeAxis(out *bufio.Writer, scale, across, bottom float64) {
	fmt.Fprintf(out, `<g class="axis" data-y="%s"><path class="rule" d="M0 %sH%s"/>`, px(bottom), px(bottom+0.5), px(across))
	every := step(tickGap / scale)
	for k := 0.0; k*every*scale <= across+0.01; k++ {
		x := k * every * scale
		fmt.Fprintf(out, `<path class="rule" d="M%s %sv5"/><text class="faint" x="%s" y="%s" font-size="11" text-anchor="middle">%s</text>`,
			px(x), px(bottom), px(x), px(bottom+17), number(k*every))
	}
	fmt.Fprintln(out, "</g>")
}

func (p *picture) writeLegend(out *bufio.Writer) {
	top := p.height - margin - p.legendHeight()
	fmt.Fprintf(out, `<g class="legend" transform="translate(0,%s)">`+"\n", px(top))
	for _, s := range p.legend() {
		for i, class := range s.class {
			x := s.x + swatchSize*float64(i)
			if class == "pair" {
				fmt.Fprintf(out, `<rect class="a F0" x="%s" y="%s" width="%d" height="%d"/>`, px(x), px(s.y), swatchSize, swatchSize/2)
				fmt.Fprintf(out, `<rect class="a %s" x="%s" y="%s" width="%d" height="%d"/>`, p.lowerHalf(), px(x), px(s.y+swatchSize/2), swatchSize,
					swatchSize/2)
				continue
			}
			fmt.Fprintf(out, `<rect class="%s" x="%s" y="%s" width="%d" height="%d"/>`, class, px(x), px(s.y), swatchSize, swatchSize)
		}
		fmt.Fprintf(out, `<text class="ink" x="%s" y="%s">%s</text>`+"\n", px(s.x+swatchSize*float64(len(s.class))+6), px(s.y+13), escape(s.text))
	}
	fmt.Fprintln(out, "</g>")
}

// lowerHalf returns the class of a pair's backward.
func (p *picture) lowerHalf() string {
	if p.types[scheduler.B] {
		return "B0"
	}
	return "I0"
}

// px formats pixels with the digits that a picture needs, exact with all digits.
func px(v float64) string    { return exact(math.Round(v*100) / 100) }
func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
