package draw

import (
	_ "embed" // embeds the page and its style
	"html/template"
	"io"

	"github.com/troupe-ml/troupe/internal/base/words"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageHTML))

// pageData holds the values of the page's template, which escapes texts.
type pageData struct {
	Title, Policy   string
	Style           template.CSS
	Drawing, Script template.HTML
	Charts          []chartFigures
}

// chartFigures is the table of a chart's figures.
type chartFigures struct {
	Title, Unit string
	Ranks       []rankFigures
}

type rankFigures struct {
	Name, Busy, Idle string
	Peak             int
}

// HTML writes charts as a page that needs no other file and no network. Each chart has an interactive drawing, and a
// table with each rank's busy and idle time and peak. Charts in the same unit have one scale and move together.
// Browsers without scripts show the pictures of SVG. The page follows the reader's choice of light or dark.
//
// It fails with ErrTooLarge above MaxBoxes actions.
func HTML(w io.Writer, charts ...Chart) error {
	p, err := newPicture("html", charts)
	if err != nil {
		return err
	}
	data := pageData{Title: words.OneLine(charts[0].Title), Policy: InlinePolicy, Script: InlineScript}
	data.Style = template.CSS(InlineStyle + pageStyle)
	if data.Drawing, err = p.inline(); err != nil {
		return err
	}
	for i := range charts {
		data.Charts = append(data.Charts, figuresOf(&charts[i], p.figures[i]))
	}
	out := buffered(w)
	if err := page.Execute(out, data); err != nil {
		return err
	}
	return out.Flush()
}

// figuresOf returns the figures of each rank.
func figuresOf(c *Chart, f Figures) chartFigures {
	of := chartFigures{Title: words.OneLine(c.Title), Unit: c.Unit}
	for r := range c.Lanes {
		of.Ranks = append(of.Ranks, rankFigures{words.OneLine(shorten(c.Lanes[r].Name)), number(f.Busy[r]), number(f.Idle[r]), f.PeakInFlight[r]})
	}
	return of
}
