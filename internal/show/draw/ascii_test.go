package draw

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/scheduler"
)

func TestTextShowsEveryActionOnce(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		for _, width := range []int{0, 60} {
			text := drawn(t, ascii(width), p.chart())
			body := strings.NewReplacer("+", " ", "=", " ").Replace(text)
			seen := make(map[string]int)
			for _, word := range strings.Fields(body) {
				seen[word]++
			}
			for _, row := range p.table.Ranks {
				for _, a := range row {
					if seen[a.String()] != 1 {
						t.Fatalf("width %d: %v stands %d times in\n%s", width, a, seen[a.String()], text)
					}
				}
			}
		}
	})
}

func TestTextKeepsItsWidth(t *testing.T) {
	for _, spec := range []scheduler.Spec{
		{Schedule: scheduler.OneFOneB, Ranks: 16, Chunks: 1, Microbatches: 64},
		{Schedule: scheduler.Interleaved, Ranks: 16, Chunks: 4, Microbatches: 64},
		{Schedule: scheduler.DualPipeV, Ranks: 16, Chunks: 2, Microbatches: 64},
	} {
		p := makePlan(t, spec)
		for _, c := range []Chart{p.chart(), p.measured()} {
			for _, width := range []int{60, 80, 100, 160, 1000} {
				for i, line := range strings.Split(drawn(t, ascii(width), c), "\n") {
					if i > 1 && len(line) > width {
						t.Fatalf("%s at width %d: line %d has %d letters:\n%s", c.Title, width, i+1, len(line), line)
					}
				}
			}
		}
	}
}

func TestTextOfScaledTimes(t *testing.T) {
	a := func(m int32) scheduler.Action { return scheduler.Action{Type: scheduler.F, Microbatch: m} }
	c := Chart{Title: "measured", Unit: Milliseconds, Lanes: []Lane{{
		Name:    "rank 0",
		Actions: []scheduler.Action{a(0), a(1), a(2), a(3), a(4), a(5), a(6), a(7)},
		Start:   []float64{0, 4.01, 8.3, 9.31, 12.01, 20.03, 24.03, 28.03},
		End:     []float64{4.01, 8.02, 9.31, 9.311, 20.03, 24.03, 28.03, 32.03},
	}}}
	text := drawn(t, ascii(0), c)
	for _, want := range []string{
		"0F0=0F1=F...0F4=====0F5=0F6=0F7=", // with a short one as its letter
		"1 action shorter than half a column left out",
		"makespan 32.03 ms",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Costs that are no whole numbers still have a common unit; costs whose unit is tiny
// beside them get scaled columns.
func TestTextChoosesItsUnit(t *testing.T) {
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f, b   float64
		row    string // of rank 3
		column float64
	}{
		{1, 2, ".   .   .   3F0 3B0 === 3F1", 1},
		{0.1, 0.3, ".   .   .   3F0 3B0 === === 3F1", 0.1},
		{2, 3, ".   .   .   .   .   .   3F0 === 3B0 === === 3F1", 1},
		{1, 2.1, "............3F0=3B0=====3F1=", 0.25},
	} {
		tl, err := scheduler.Simulate(table, func(_ int, a scheduler.Action) float64 {
			if a.Type == scheduler.F {
				return c.f
			}
			return c.b
		})
		if err != nil {
			t.Fatal(err)
		}
		text := drawn(t, ascii(0), FromTimeline(table, tl))
		if !strings.Contains(text, "rank 3  "+c.row) {
			t.Errorf("costs %v and %v: no row %q in\n%s", c.f, c.b, c.row, text)
		}
	}
}

// randomChart is any legal chart.
func randomChart(rt *rapid.T) Chart {
	c := Chart{
		Title:    rapid.String().Draw(rt, "title"),
		Unit:     rapid.SampledFrom([]string{Units, Milliseconds}).Draw(rt, "unit"),
		Makespan: rapid.SampledFrom([]float64{0, 5e-324, 1e-13, 7, 100.5, maxTime}).Draw(rt, "makespan"),
		Facts:    []Fact{{rapid.String().Draw(rt, "label"), rapid.String().Draw(rt, "value")}},
	}
	for r := range rapid.IntRange(1, 5).Draw(rt, "lanes") {
		l := Lane{Name: rapid.String().Draw(rt, "name")}
		now := 0.0
		for i := range rapid.IntRange(0, 30).Draw(rt, fmt.Sprint("actions of ", r)) {
			a := scheduler.Action{
				Chunk:      rapid.Int32Range(0, 12).Draw(rt, "chunk"),
				Type:       scheduler.Type(rapid.IntRange(int(scheduler.F), int(scheduler.B)).Draw(rt, "type")),
				Microbatch: rapid.Int32Range(0, 1000).Draw(rt, "microbatch"),
			}
			now += rapid.SampledFrom([]float64{0, 0, 5e-324, 0.1, 1, 7.3}).Draw(rt, "wait")
			takes := rapid.SampledFrom([]float64{0, 5e-324, 1e-9, 0.3, 1, 1e3, 1e9}).Draw(rt, "takes")
			if i > 0 && rapid.Bool().Draw(rt, "pair") && !l.Actions[i-1].Overlap && (i == 1 || !l.Actions[i-2].Overlap) {
				l.Actions[i-1].Overlap = true
				l.Start, l.End = append(l.Start, l.Start[i-1]), append(l.End, l.End[i-1])
			} else {
				l.Start, l.End = append(l.Start, now), append(l.End, now+takes)
			}
			if rapid.Bool().Draw(rt, "after") {
				now = max(now, l.End[i])
			}
			now = max(now, l.Start[i])
			l.Actions = append(l.Actions, a)
		}
		c.Lanes = append(c.Lanes, l)
	}
	return c
}

func TestAnyChartCanBeDrawn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		charts := []Chart{randomChart(rt), randomChart(rt)}
		width := rapid.IntRange(0, 200).Draw(rt, "width")
		var b strings.Builder
		if err := ASCII(&b, width, charts...); err != nil {
			rt.Fatal(err)
		}
		if n := strings.Count(b.String(), "peak in flight\n"); n != 2 {
			rt.Fatalf("%d tables of figures for 2 charts", n)
		}
		b.Reset()
		if err := SVG(&b, charts...); err != nil {
			rt.Fatal(err)
		}
		if err := wellFormed(b.String()); err != nil {
			rt.Fatalf("%v in\n%s", err, b.String())
		}
		b.Reset()
		if err := HTML(&b, charts...); err != nil {
			rt.Fatal(err)
		}
		if err := wellFormed(inlineSVG(b.String())); err != nil {
			rt.Fatalf("%v in\n%s", err, b.String())
		}
		b.Reset()
		if err := Perfetto(&b, charts...); err != nil {
			rt.Fatal(err)
		}
		if err := checkTrace(b.String(), charts); err != nil {
			rt.Fatalf("%v in\n%s", err, b.String())
		}
	})
}
