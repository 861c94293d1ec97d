package draw

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// wellFormed says whether a text is one XML element, whole.
func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && roots == 1 && depth == 0:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%d elements at the top, want 1", roots)
		case err != nil:
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// inlineSVG cuts the picture out of a page.
func inlineSVG(page string) string {
	_, rest, _ := strings.Cut(page, "<svg ")
	svg, _, _ := strings.Cut(rest, "</svg>")
	return "<svg " + svg + "</svg>"
}

func TestPicturesAreWellFormed(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		odd := p.measured()
		odd.Title = `<script>alert("1 & 2")</script>` + "\x00\xff"
		odd.Lanes[0].Name = `"<'&`
		odd.Facts = []Fact{{"</svg>", "<!--"}}
		for _, charts := range [][]Chart{{p.chart()}, {p.chart(), odd}} {
			if err := wellFormed(drawn(t, SVG, charts...)); err != nil {
				t.Errorf("svg: %v", err)
			}
			page := drawn(t, HTML, charts...)
			if err := wellFormed(inlineSVG(page)); err != nil {
				t.Errorf("svg in html: %v", err)
			}
			if strings.Count(page, "<script") != 1 || strings.Count(page, "</svg>") != 1 {
				t.Error("a name made its way into the page as it was")
			}
		}
	})
}

// The picture is read back: each action is a box of its time, on its rank's height,
// with the right words.
func TestPictureShowsEveryAction(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		text := drawn(t, SVG, p.chart())
		var picture struct {
			Charts []struct {
				Scale float64 `xml:"data-scale,attr"`
				Class string  `xml:"class,attr"`
				Zoom  []struct {
					Ranks []struct {
						Boxes []struct {
							Action string  `xml:"data-a,attr"`
							X      float64 `xml:"x,attr"`
							Y      float64 `xml:"y,attr"`
							Width  float64 `xml:"width,attr"`
							Title  string  `xml:"title"`
						} `xml:"rect"`
					} `xml:"g"`
				} `xml:"g"`
			} `xml:"g"`
		}
		if err := xml.Unmarshal([]byte(text), &picture); err != nil {
			t.Fatal(err)
		}
		for _, c := range picture.Charts {
			if c.Class != "chart" {
				continue
			}
			for r, rank := range c.Zoom[0].Ranks {
				boxes := rank.Boxes[1:] // behind them the lane
				if len(boxes) != len(p.table.Ranks[r]) {
					t.Fatalf("rank %d has %d boxes, want %d", r, len(boxes), len(p.table.Ranks[r]))
				}
				for i, a := range p.table.Ranks[r] {
					start, end := p.timeline.Start[r][i], p.timeline.End[r][i]
					b := boxes[i]
					words := fmt.Sprintf("chunk %d %s of microbatch %d, %v–%v", a.Chunk, typeName(a.Type), a.Microbatch, start, end)
					if b.Action != a.String() || b.Title != words {
						t.Fatalf("rank %d, box %d is %s, %q; want %v, %q", r, i, b.Action, b.Title, a, words)
					}
					if math.Abs(b.X-start*c.Scale) > 0.01 || math.Abs(b.Width-(end-start)*c.Scale) > 0.01 {
						t.Fatalf("%v is at %v, %v wide; want %v, %v", a, b.X, b.Width, start*c.Scale, (end-start)*c.Scale)
					}
					if top := c.Zoom[0].Ranks[r].Boxes[0].Y; b.Y < top || b.Y >= top+boxHeight {
						t.Fatalf("%v of rank %d is at height %v", a, r, b.Y)
					}
				}
			}
			return
		}
		t.Fatal("no chart")
	})
}

// At 16 ranks with 4 chunks and 64 microbatches every box still has its number.
func TestEveryNumberHasRoom(t *testing.T) {
	p := makePlan(t, scheduler.Spec{Schedule: scheduler.Interleaved, Ranks: 16, Chunks: 4, Microbatches: 64})
	text := drawn(t, SVG, p.chart())
	if got, want := strings.Count(text, `<text class="n`), 16*4*64*2; got != want {
		t.Errorf("%d numbers for %d actions", got, want)
	}
	if strings.Contains(text, `<text class="n s"`) {
		t.Error("numbers are smaller than they need be")
	}
}

func TestChartsInOneUnitShareTheirScale(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	planned, measured := p.measured(), p.measured()
	measured.Makespan = 3 * measured.makespan()
	scales := func(charts ...Chart) []string {
		parts := strings.Split(drawn(t, SVG, charts...), `data-scale="`)[1:]
		for i, part := range parts {
			parts[i], _, _ = strings.Cut(part, `"`)
		}
		return parts
	}
	if s := scales(planned, measured); len(s) != 2 || s[0] != s[1] {
		t.Errorf("scales %v of two charts in ms, want equal ones", s)
	}
	if s := scales(p.chart(), measured); len(s) != 2 || s[0] == s[1] {
		t.Errorf("scales %v of units and ms, want one of each", s)
	}
}

// The page must not ask for anything.
func TestPageStandsAlone(t *testing.T) {
	page := drawn(t, HTML, makePlan(t, goldenSpecs[0].spec).chart())
	page = strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")
	for _, s := range []string{"http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"} {
		if strings.Contains(page, s) {
			t.Errorf("the page has %q", s)
		}
	}
	for _, s := range []string{`role="img"`, "aria-label", "prefers-color-scheme: dark", "<table>", "Content-Security-Policy"} {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}
