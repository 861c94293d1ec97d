package draw

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

var update = flag.Bool("update", false, "rewrite testdata")

// goldenSpecs are the tables whose drawings stand in testdata.
var goldenSpecs = []struct {
	name string
	spec scheduler.Spec
}{
	{"1f1b_p4_m8", scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}},
	{"zb-v_p4_m8", scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 4, Chunks: 2, Microbatches: 8}},
	{"dualpipev_p4_m10", scheduler.Spec{Schedule: scheduler.DualPipeV, Ranks: 4, Chunks: 2, Microbatches: 10}},
	{"interleaved_p2_v2_m4", scheduler.Spec{Schedule: scheduler.Interleaved, Ranks: 2, Chunks: 2, Microbatches: 4}},
}

// plan is a table and what scheduler says about it.
type plan struct {
	table    *scheduler.Table
	report   *scheduler.Report
	timeline *scheduler.Timeline
}

func makePlan(t testing.TB, s scheduler.Spec) plan {
	t.Helper()
	table, err := scheduler.Generate(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	report, err := scheduler.Check(table)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	tl, err := scheduler.Simulate(table, scheduler.UnitCosts)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return plan{table, report, tl}
}

func (p plan) chart() Chart { return FromTimeline(p.table, p.timeline) }

// measured is a chart as a run might give it: in milliseconds, no two actions alike.
func (p plan) measured() Chart {
	c := p.chart()
	c.Title, c.Unit = "measured", Milliseconds
	c.Facts = []Fact{{"step", "7"}}
	c.Makespan = 0
	lanes := make([]Lane, len(c.Lanes))
	for r, l := range c.Lanes {
		lanes[r] = Lane{Name: l.Name, Actions: l.Actions}
		for i := range l.Start {
			from := i
			if i > 0 && l.Actions[i-1].Overlap {
				from--
			}
			lanes[r].Start = append(lanes[r].Start, 3.7*l.Start[i]+0.013*float64((7*from+r)%11))
			lanes[r].End = append(lanes[r].End, 3.7*l.End[i]-0.0171*float64((5*from+r)%7))
		}
	}
	c.Lanes = lanes
	return c
}

// everySchedule calls visit with small tables of every schedule.
func everySchedule(t *testing.T, visit func(t *testing.T, p plan)) {
	for _, name := range scheduler.Schedules() {
		made := 0
		for _, s := range []scheduler.Spec{
			{Ranks: 1, Chunks: 1, Microbatches: 3},
			{Ranks: 4, Chunks: 1, Microbatches: 8},
			{Ranks: 4, Chunks: 2, Microbatches: 8},
			{Ranks: 3, Chunks: 2, Microbatches: 12},
			{Ranks: 4, Chunks: 2, Microbatches: 8, ForwardOnly: true},
		} {
			s.Schedule = name
			if _, err := scheduler.Generate(s); err != nil {
				continue
			}
			made++
			t.Run(fmt.Sprintf("%s_p%d_v%d_m%d_%v", name, s.Ranks, s.Chunks, s.Microbatches, s.ForwardOnly), func(t *testing.T) {
				visit(t, makePlan(t, s))
			})
		}
		if made == 0 {
			t.Errorf("no table of schedule %s", name)
		}
	}
}

type writer func(w io.Writer, charts ...Chart) error

func ascii(width int) writer {
	return func(w io.Writer, charts ...Chart) error { return ASCII(w, width, charts...) }
}

func drawn(t testing.TB, write writer, charts ...Chart) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, charts...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("%s (go test -update rewrites it), line %d\nwant %s\ngot  %s", file, i+1, w[i], g[i])
			}
		}
		t.Fatalf("%s (go test -update rewrites it): want %d lines, got %d", file, len(w), len(g))
	}
}

func TestGolden(t *testing.T) {
	for _, g := range goldenSpecs {
		t.Run(g.name, func(t *testing.T) {
			p := makePlan(t, g.spec)
			golden(t, g.name+".txt", drawn(t, ascii(0), p.chart()))
			golden(t, g.name+".svg", drawn(t, SVG, p.chart()))
			c := p.chart()
			c.Credits = &p.report.Credits
			trace, err := parseTrace([]byte(drawn(t, Perfetto, c)))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, g.name+".trace.txt", trace.String())
			golden(t, g.name+".json", drawn(t, p.summary(false), p.chart()))
		})
	}
	p := makePlan(t, goldenSpecs[0].spec)
	golden(t, "1f1b_p4_m8_measured.txt", drawn(t, ascii(100), p.chart(), p.measured()))
}

func (p plan) summary(full bool) writer {
	return func(w io.Writer, _ ...Chart) error { return Summary(w, p.table, p.report, p.timeline, full) }
}

// formats are the functions that take charts.
var formats = map[string]writer{"ascii": ascii(0), "svg": SVG, "html": HTML, "perfetto": Perfetto}

func TestMalformedChartsAreRefused(t *testing.T) {
	f := scheduler.Action{Chunk: 0, Type: scheduler.F, Microbatch: 0}
	b := scheduler.Action{Chunk: 0, Type: scheduler.B, Microbatch: 0}
	first := f
	first.Overlap = true
	nan := func() float64 { z := 0.0; return z / z }()
	lane := func(start, end []float64, actions ...scheduler.Action) Chart {
		return Chart{Title: "t", Unit: Units, Lanes: []Lane{{Name: "rank 0", Actions: actions, Start: start, End: end}}}
	}
	withUnit := lane(nil, nil)
	withUnit.Unit = "weeks"
	withMakespan := lane(nil, nil)
	withMakespan.Makespan = nan
	for _, c := range []struct {
		name, says string
		chart      Chart
	}{
		{"unit", `unknown unit "weeks"`, withUnit},
		{"no lanes", "no lanes", Chart{Unit: Units}},
		{"makespan", "makespan NaN", withMakespan},
		{"too few times", "1 actions, but 0 starts and 0 ends", lane(nil, nil, f)},
		{"too many times", "1 actions, but 2 starts and 1 ends", lane([]float64{1, 2}, []float64{3}, f)},
		{"no type", "is not a valid action", lane([]float64{0}, []float64{1}, scheduler.Action{})},
		{"negative chunk", "is not a valid action", lane([]float64{0}, []float64{1}, scheduler.Action{Chunk: -1, Type: scheduler.F})},
		{"negative time", "from -1 to 1", lane([]float64{-1}, []float64{1}, f)},
		{"no number", "from 0 to NaN", lane([]float64{0}, []float64{nan}, f)},
		{"huge", "from 0 to 1e+13", lane([]float64{0}, []float64{1e13}, f)},
		{"backwards", "ends at 1, before it starts at 2", lane([]float64{2}, []float64{1}, f)},
		{"unsorted", "sort the actions by start", lane([]float64{2, 0}, []float64{3, 1}, f, b)},
		{"half a pair", "overlaps with the next action", lane([]float64{0}, []float64{1}, first)},
		{"two firsts", "overlaps with the next action", lane([]float64{0, 0}, []float64{1, 1}, first, first)},
	} {
		for name, write := range formats {
			var out bytes.Buffer
			err := write(&out, c.chart)
			if !errors.Is(err, ErrChart) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %s: error %v, want ErrChart with %q", name, c.name, err, c.says)
			}
			if out.Len() > 0 {
				t.Errorf("%s, %s: wrote %d bytes before it refused", name, c.name, out.Len())
			}
		}
	}
	for name, write := range formats {
		if err := write(io.Discard); !errors.Is(err, ErrChart) {
			t.Errorf("%s without charts: error %v, want ErrChart", name, err)
		}
	}
}

func TestLargeChartsAreRefused(t *testing.T) {
	n := MaxBoxes + 1
	l := Lane{Name: "rank 0", Actions: make([]scheduler.Action, n), Start: make([]float64, n), End: make([]float64, n)}
	for i := range n {
		l.Actions[i] = scheduler.Action{Type: scheduler.F, Microbatch: int32(i)}
		l.Start[i], l.End[i] = float64(i), float64(i+1)
	}
	c := Chart{Title: "large", Unit: Units, Lanes: []Lane{l}}
	for name, write := range map[string]writer{"svg": SVG, "html": HTML} {
		var out bytes.Buffer
		err := write(&out, c)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "200001 actions") || !strings.Contains(err.Error(), "perfetto") {
			t.Errorf("%s: error %v, want ErrTooLarge with the number and what to do", name, err)
		}
		if out.Len() > 0 {
			t.Errorf("%s wrote %d bytes before it refused", name, out.Len())
		}
	}
	c.Lanes = []Lane{l, l, l, l, l}
	err := ASCII(io.Discard, 80, c)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1800009 columns for each of 5 ranks") {
		t.Errorf("ascii: error %v, want ErrTooLarge with the numbers", err)
	}
}

// failing takes some bytes and then no more.
type failing struct{ room int }

var errFull = errors.New("no space left")

func (f *failing) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// Two charts of several times the writer's buffer: whenever the writer fails, its error
// comes back, and nobody writes on as if all were well.
func TestWriteErrorsComeBackFromEverywhere(t *testing.T) {
	p := makePlan(t, scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 8, Chunks: 1, Microbatches: 128})
	charts := []Chart{p.chart(), p.measured()}
	for name, write := range formats {
		size := len(drawn(t, write, charts...))
		for part := range 40 {
			out := &failing{part * size / 40}
			if err := write(out, charts...); !errors.Is(err, errFull) {
				t.Errorf("%s after %d of %d bytes: error %v, want that of the writer", name, part*size/40, size, err)
			}
		}
		if err := write(&failing{size}, charts...); err != nil {
			t.Errorf("%s with room for all: %v", name, err)
		}
	}
}

func TestWriteErrorsComeBack(t *testing.T) {
	p := makePlan(t, scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 16, Chunks: 1, Microbatches: 64})
	all := map[string]writer{"json": p.summary(true)}
	for name, write := range formats {
		all[name] = write
	}
	for name, write := range all {
		for _, room := range []int{0, 1 << 16} {
			size := len(drawn(t, write, p.chart()))
			if err := write(&failing{room}, p.chart()); size > room && !errors.Is(err, errFull) {
				t.Errorf("%s after %d of %d bytes: error %v, want that of the writer", name, room, size, err)
			}
		}
	}
}
