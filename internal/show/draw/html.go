package draw

import (
	_ "embed" // the page, its style and its script
	"html/template"
	"io"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageStyle string

// PictureStyle is what a page with a Picture has among its styles, so that the picture follows the
// reader's choice of light or dark.
//
//go:embed picture.css
var PictureStyle string

//go:embed page.js
var pageScript string

// page is what stands before the picture, "head", and behind it, "tail": the picture may be
// large, and goes out between the two as it is drawn.
var page = template.Must(template.New("page").Parse(pageHTML))

// pageData are the page's values. Texts are escaped where they stand.
type pageData struct {
	Title  string
	Style  template.CSS
	Script template.JS
	Charts []chartFigures
}

// chartFigures are the figures of a chart in a table.
type chartFigures struct {
	Title, Unit, Makespan, Bubble string
	Ranks                         []rankFigures
}

type rankFigures struct {
	Name, Busy, Idle string
	Peak             int
}

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
	data := pageData{Title: oneLine(charts[0].Title), Style: template.CSS(pageStyle + PictureStyle), Script: template.JS(pageScript)}
	for i := range charts {
		data.Charts = append(data.Charts, figuresOf(&charts[i], p.figures[i]))
	}
	out := buffered(w)
	if err := page.ExecuteTemplate(out, "head", data); err != nil {
		return err
	}
	p.write(out)
	if err := page.ExecuteTemplate(out, "tail", data); err != nil {
		return err
	}
	return out.Flush()
}

// figuresOf lists the figures of each rank.
func figuresOf(c *Chart, f Figures) chartFigures {
	of := chartFigures{Title: c.Title, Unit: c.Unit, Makespan: number(f.Makespan), Bubble: percent(f.BubbleFraction)}
	for r := range c.Lanes {
		of.Ranks = append(of.Ranks, rankFigures{shorten(c.Lanes[r].Name), number(f.Busy[r]), number(f.Idle[r]), f.PeakInFlight[r]})
	}
	return of
}
