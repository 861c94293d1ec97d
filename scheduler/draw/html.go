package draw

import (
	"bufio"
	_ "embed" // the style and the script of the page
	"fmt"
	"io"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// HTML writes charts as a page that needs no other file and no network: the picture
// that SVG draws, and each rank's busy and idle time and peak. Its script zooms and
// pans along the time, and shows a microbatch's way through the ranks. Without script it
// is a picture in a box that scrolls. It follows the reader's choice of light or dark.
//
// It fails with ErrTooLarge above MaxBoxes actions.
func HTML(w io.Writer, charts ...Chart) error {
	p, err := newPicture("html", charts)
	if err != nil {
		return err
	}
	out := buffered(w)
	fmt.Fprintf(out, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>
%s</style>
</head>
<body>
<main>
`, escape(oneLine(charts[0].Title)), pageStyle)
	fmt.Fprint(out, pageControls)
	fmt.Fprint(out, `<div id="view" tabindex="0" role="region" aria-label="Timeline of all ranks, scrolls sideways">`+"\n")
	p.write(out)
	fmt.Fprint(out, "</div>\n")
	for i := range charts {
		writeTable(out, &charts[i], p.figures[i])
	}
	fmt.Fprintf(out, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", pageScript)
	return out.Flush()
}

// pageControls is shown by the script, which makes them work.
const pageControls = `<div id="controls" role="toolbar" aria-label="Zoom and microbatch" hidden>
<button type="button" data-do="out" aria-label="Zoom out">−</button>
<button type="button" data-do="in" aria-label="Zoom in">+</button>
<button type="button" data-do="fit">Fit</button>
<button type="button" data-do="natural">1:1</button>
<button type="button" data-do="previous" aria-label="Show the previous microbatch">‹</button>
<button type="button" data-do="next" aria-label="Show the next microbatch">›</button>
<output id="status" aria-live="polite"></output>
<span class="hint">Ctrl + wheel or + − zooms, drag or ← → pans, 0 fits, 1 is 1:1, n and p step through microbatches, Esc ends it</span>
</div>
`

// writeTable lists the figures of each rank.
func writeTable(out *bufio.Writer, c *Chart, f Figures) {
	fmt.Fprintf(out, "<div class=\"figures\"><table>\n<caption>%s<br>makespan %s %s, bubble %s</caption>\n",
		escape(c.Title), number(f.Makespan), escape(c.Unit), percent(f.BubbleFraction))
	fmt.Fprintf(out, "<thead><tr><th scope=\"col\">rank</th><th scope=\"col\">busy (%[1]s)</th><th scope=\"col\">idle (%[1]s)</th><th scope=\"col\">peak in flight</th></tr></thead>\n<tbody>\n", escape(c.Unit))
	for r := range c.Lanes {
		fmt.Fprintf(out, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%d</td></tr>\n",
			escape(shorten(c.Lanes[r].Name)), number(f.Busy[r]), number(f.Idle[r]), f.PeakInFlight[r])
	}
	fmt.Fprint(out, "</tbody>\n</table></div>\n")
}
