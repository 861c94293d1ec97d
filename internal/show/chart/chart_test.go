package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/show/chart"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// example is a run's losses, with all that a chart can have.
func example() chart.Chart {
	c := chart.Chart{
		ID: "loss", Title: "Loss", Across: "step", Lines: []chart.Line{{Name: "training"}, {Name: "validation", Dots: true}},
		Marks: []chart.Mark{{X: 30, Text: "checkpoint"}, {X: 60, Sign: "R", Text: "worker <b> was lost"}, {X: 1000, Sign: "R", Text: "beyond"}},
	}
	for i := range 101 {
		y := 2 + 8*math.Exp(-float64(i)/20)
		pt := chart.Point{X: float64(10 * i), Y: y, Low: y - 0.1, High: y + 0.2}
		if i == 40 {
			pt = chart.At(pt.X, math.NaN())
		}
		c.Lines[0].Points = append(c.Lines[0].Points, pt)
		if i%25 == 0 {
			c.Lines[1].Points = append(c.Lines[1].Points, chart.At(pt.X, 2.5+8*math.Exp(-float64(i)/20)))
		}
	}
	return c
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v; written:\n%s", name, err, got)
	}
}

func TestGolden(t *testing.T) {
	loss := example()
	norm := chart.Chart{ID: "norm", Title: "Gradient norm", Unit: "before clipping", Across: "tokens", Log: true,
		Lines: []chart.Line{{Name: "norm", Points: []chart.Point{
			chart.At(0, 300), chart.At(1e6, 7), chart.At(2e6, 0), chart.At(3e6, 0.02), chart.At(4e6, 0.4),
		}}}}
	memory := chart.Chart{ID: "memory", Title: "Memory", Unit: "GiB", Across: "step", Zero: true,
		Lines: []chart.Line{{Name: "peak", Points: []chart.Point{chart.At(1, 3.5)}}}}
	empty := chart.Chart{ID: "empty", Title: "Nothing", Across: "step"}
	for name, c := range map[string]chart.Chart{"loss.html": loss, "norm.html": norm, "memory.html": memory, "empty.html": empty} {
		var out bytes.Buffer
		if err := c.Write(&out); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.Bytes())
	}
	var out bytes.Buffer
	if err := chart.Spark(&out, loss.Lines[0], "step"); err != nil {
		t.Fatal(err)
	}
	golden(t, "spark.html", out.Bytes())
}

// TestAnything: whatever is drawn is well formed, has no text of others as markup, and no coordinate
// that is no number.
func TestAnything(t *testing.T) {
	value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 10), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, math.MaxFloat64,
		-math.MaxFloat64, 5e-324, 1}))
	point := rapid.Custom(func(t *rapid.T) chart.Point {
		return chart.Point{X: value.Draw(t, "x"), Y: value.Draw(t, "y"), Low: value.Draw(t, "low"), High: value.Draw(t, "high")}
	})
	text := rapid.OneOf(rapid.String(), rapid.Just(`<script>"'&`))
	rapid.Check(t, func(t *rapid.T) {
		c := chart.Chart{ID: "x", Title: text.Draw(t, "title"), Across: text.Draw(t, "across"), Unit: text.Draw(t, "unit"),
			Log: rapid.Bool().Draw(t, "log"), Zero: rapid.Bool().Draw(t, "zero")}
		for range rapid.IntRange(0, 8).Draw(t, "lines") {
			c.Lines = append(c.Lines, chart.Line{Name: text.Draw(t, "name"), Dots: rapid.Bool().Draw(t, "dots"),
				Points: rapid.SliceOfN(point, 0, 20).Draw(t, "points")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "marks") {
			c.Marks = append(c.Marks, chart.Mark{X: value.Draw(t, "at"), Sign: rapid.SampledFrom([]string{"", "R", "<"}).Draw(t, "sign"),
				Text: text.Draw(t, "text")})
		}
		var out bytes.Buffer
		if err := c.Write(&out); err != nil {
			t.Fatal(err)
		}
		if len(c.Lines) > 0 {
			if err := chart.Spark(&out, c.Lines[0], c.Across); err != nil {
				t.Fatal(err)
			}
		}
		check(t, "<all>"+out.String()+"</all>")
	})
}

// check reads a page's part as XML, which is stricter than a browser.
func check(t *rapid.T, page string) {
	in := xml.NewDecoder(strings.NewReader(page))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, page)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "all", "figure", "figcaption", "span", "svg", "title", "desc", "g", "line", "path", "circle", "text":
		default:
			t.Fatalf("there is a %s in\n%s", start.Name.Local, page)
		}
		for _, a := range start.Attr {
			if a.Name.Local != "aria-label" && (strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf")) {
				t.Fatalf("%s is %q in\n%s", a.Name.Local, a.Value, page)
			}
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "style" {
				t.Fatalf("there is an attribute %s in\n%s", a.Name.Local, page)
			}
		}
	}
}
