package draw

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/scheduler"
)

// cutPlan is a plan whose pairs are cut at the exchanges of a number of layers with experts.
func cutPlan(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, s scheduler.Spec, layers int, exchange float64) plan {
	t.Helper()
	whole, err := scheduler.Generate(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	table, err := whole.Cut(scheduler.ExpertLayers(layers))
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	report, err := scheduler.Check(table)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	tl, err := scheduler.Simulate(table, func(rank int, a scheduler.Action) float64 {
		if a.Type.IsExchange() {
			return exchange
		}
		return scheduler.UnitCosts(rank, a)
	})
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return plan{table, report, tl}
}

var cutSpec = scheduler.Spec{Schedule: scheduler.DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 6}

func TestGoldenOfExchanges(t *testing.T) {
	p := cutPlan(t, cutSpec, 1, 0.25)
	golden(t, "exchanges.txt", drawn(t, ascii(160), p.chart()))
	golden(t, "exchanges.svg", drawn(t, SVG, p.chart()))
	trace, err := parseTrace([]byte(drawn(t, Perfetto, p.chart())))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "exchanges.trace.txt", trace.String())
	const pair = `"(0F3.1;0FD3.1;3B1.1;3BD1.1;0F3.2;0FC3.2;3B1.2;3BC1.2;0F3.3;3B1.3)OVERLAP_F_B"`
	if text := drawn(t, p.summary(false), p.chart()); !strings.Contains(text, pair) {
		t.Errorf("a pair in parts is no cell of\n%s", text)
	}
}

// measuredParts is a measured step of one rank whose pair took turns: of its exchanges, one is partly hidden, one not at all, and two
// overlap.
func measuredParts(t *testing.T) *scheduler.Step {
	t.Helper()
	const row = "(0F0.1;0FD0.1;0F0.2;0FC0.2;0F0.3)OVERLAP_F_B," +
		"(0F1.1;0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;0B0.2;0BC0.2;0F1.3;0B0.3)OVERLAP_F_B,0B1"
	table, err := scheduler.ReadCSV("measured", row)
	if err != nil {
		t.Fatal(err)
	}
	table.Schedule = "own"
	return &scheduler.Step{Number: 7, Table: table, MS: [][][2]float64{{{0, 2}, {2, 4}, {4, 6}, {6, 7}, {7, 8}, // nothing is hidden
		{8, 11}, {9, 13}, {11, 14}, {12, 18}, {14, 16}, {15, 18.5}, {18, 20}, {19, 20.5}, {20, 21}, {21, 23}, {23.5, 28}}}}
}

// TestGoldenOfMeasuredExchanges: a measured step in parts is drawn as a forecast is, and its figures say how much of the exchange was
// hidden.
func TestGoldenOfMeasuredExchanges(t *testing.T) {
	planned, measured, err := FromStep(measuredParts(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "exchanges_measured.txt", drawn(t, ascii(160), planned, measured))
	// On the link from 2 to 4, 6 to 7, 9 to 18.5, and 19 to 20.5; meanwhile the rank computed from 9 to 16 and from 18 on.
	if f := measured.Figures(); f.Exchange != 14 || f.Hidden != 9 {
		t.Errorf("tokens traveled for %v ms, %v of them hidden, want 14 and 9", f.Exchange, f.Hidden)
	}
	d, err := ForBrowser(measuredParts(t))
	if err != nil {
		t.Fatal(err)
	}
	if head, _, _ := unpack(t, d.Bytes); head.ExchangeMS != 14 || head.HiddenMS != 9 {
		t.Errorf("in the browser tokens traveled for %v ms, %v of them hidden, want 14 and 9", head.ExchangeMS, head.HiddenMS)
	}
	for name, write := range formats {
		if drawn(t, write, planned, measured) == "" {
			t.Errorf("%s: nothing", name)
		}
	}
}

// TestExchangesAreDrawnApart: a chart of a cut table has the parts on the ranks and the exchanges on their links, each once, in all
// formats, and the figures of the simulation.
func TestExchangesAreDrawnApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := cutSpec
		spec.Ranks = rapid.IntRange(1, 3).Draw(t, "ranks")
		spec.Microbatches = 2*spec.Ranks + rapid.IntRange(0, 3).Draw(t, "more")
		p := cutPlan(t, spec, rapid.IntRange(1, 3).Draw(t, "layers"), float64(rapid.IntRange(0, 8).Draw(t, "exchange"))/8)
		c := p.chart()
		all := 0
		for r, row := range p.table.Ranks {
			l := &c.Lanes[r]
			parts, exchanges := 0, 0
			for i, a := range row {
				if a.Type.IsExchange() {
					a.Overlap = false
					if x := l.Exchanges[exchanges]; x.Action != a || x.Start != p.timeline.Start[r][i] || x.End != p.timeline.End[r][i] {
						t.Errorf("exchange %d of rank %d is %v, want %v", exchanges, r, x, a)
					}
					exchanges++
					continue
				}
				got := l.Actions[parts]
				if got.String() != a.String() || l.Start[parts] != p.timeline.Start[r][i] || l.End[parts] != p.timeline.End[r][i] {
					t.Errorf("action %d of rank %d is %v, want %v", parts, r, got, a)
				}
				parts++
			}
			if parts != len(l.Actions) || exchanges != len(l.Exchanges) || exchanges == 0 {
				t.Errorf("rank %d has %d actions and %d exchanges, want %d and %d", r, len(l.Actions), len(l.Exchanges), parts, exchanges)
			}
			all += exchanges
		}
		f := c.Figures()
		traveled := 0.0 // those of a simulation do not overlap on a link
		for _, l := range c.Lanes {
			for _, x := range l.Exchanges {
				traveled += x.End - x.Start
			}
		}
		if math.Abs(f.Exchange-traveled) > 1e-9 || f.Hidden < 0 || f.Hidden > f.Exchange+1e-9 {
			t.Errorf("tokens travel for %v, %v of that hidden, want %v", f.Exchange, f.Hidden, traveled)
		}
		for r, busy := range p.timeline.Busy {
			if math.Abs(f.Busy[r]-busy) > 1e-9*busy || math.Abs(f.Idle[r]-p.timeline.Idle[r]) > 1e-9*busy {
				t.Errorf("rank %d is busy for %v and idle for %v, want %v and %v", r, f.Busy[r], f.Idle[r], busy, p.timeline.Idle[r])
			}
		}
		if math.Abs(f.BubbleFraction-p.timeline.BubbleFraction) > 1e-9 || !slices.Equal(f.PeakInFlight, p.report.PeakInFlight) {
			t.Errorf("bubble %v, peaks %v, want %v and %v", f.BubbleFraction, f.PeakInFlight, p.timeline.BubbleFraction,
				p.report.PeakInFlight)
		}

		var out bytes.Buffer
		if err := SVG(&out, c); err != nil {
			t.Fatal(err)
		}
		drawnAs := 0
		for _, typ := range []string{"FD", "FC", "BD", "BC"} {
			drawnAs += strings.Count(out.String(), `class="a `+typ+`"`)
		}
		if drawnAs != all {
			t.Errorf("the picture has boxes of %d exchanges, want %d", drawnAs, all)
		}
		if err := wellFormed(out.String()); err != nil {
			t.Error(err)
		}

		d, err := c.forBrowser()
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := unpack(t, d.Bytes)
		for r, sums := range head.Sums {
			idle := 0.0
			for _, ms := range sums {
				idle += ms
			}
			if math.Abs(idle+head.Busy[r]-head.StepMS) > 1e-6*head.StepMS || len(p.table.Ranks[r]) != head.Counts[r] {
				t.Errorf("rank %d works for %v and waits for %v of %v, with %d actions", r, head.Busy[r], idle, head.StepMS, head.Counts[r])
			}
		}

		out.Reset()
		if err := Perfetto(&out, c); err != nil {
			t.Fatal(err)
		}
		trace, err := parseTrace(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		slices, held := 0, make(map[uint64]int64)
		for _, e := range trace.events {
			switch {
			case e.kind == sliceBegin && trace.tracks[e.track].name == "tokens on the link":
				slices++
			case e.kind == counter && trace.tracks[e.track].name == "outputs held":
				held[e.track] = e.value
			}
		}
		if slices != all {
			t.Errorf("the trace has %d exchanges, want %d", slices, all)
		}
		for _, n := range held {
			if n != 0 {
				t.Errorf("a rank holds %d outputs at the end", n)
			}
		}
	})
}

// TestMessagesOfParts: an output leaves at the end of the last part, and is taken at the start of the first.
func TestMessagesOfParts(t *testing.T) {
	whole, cut := makePlan(t, cutSpec).chart(), cutPlan(t, cutSpec, 2, 0.1).chart()
	type ends struct{ from, to scheduler.Action }
	of := func(c *Chart) (all []ends) {
		for m := range c.messages() {
			from, to := c.Lanes[m.from.lane].Actions[m.from.at], c.Lanes[m.to.lane].Actions[m.to.at]
			if to.Part > 1 || from.Part > 0 && from.Part != 5 {
				t.Errorf("a message goes from %v to %v", from, to)
			}
			from.Part, to.Part, from.Overlap, to.Overlap = 0, 0, false, false
			all = append(all, ends{from, to})
		}
		return all
	}
	if got, want := of(&cut), of(&whole); !slices.Equal(got, want) {
		t.Errorf("the messages are\n%v\nwant\n%v", got, want)
	}
}

func TestMalformedExchangesAreRefused(t *testing.T) {
	fd := scheduler.Action{Type: scheduler.FD, Part: 1}
	for name, c := range map[string]struct {
		exchanges []Exchange
		says      string
	}{
		"no exchange":    {[]Exchange{{Action: scheduler.Action{Type: scheduler.F}}}, "0F0 is not a valid exchange"},
		"chunk":          {[]Exchange{{Action: scheduler.Action{Type: scheduler.FD, Chunk: -1}}}, "is not a valid exchange"},
		"backwards":      {[]Exchange{{fd, 2, 1}}, "from 2 to 1"},
		"not a number":   {[]Exchange{{fd, 0, math.NaN()}}, "from 0 to NaN"},
		"in wrong order": {[]Exchange{{fd, 1, 2}, {fd, 0, 1}}, "sort them by start"},
	} {
		chart := Chart{Title: "t", Unit: Units, Lanes: []Lane{{Name: "rank 0", Exchanges: c.exchanges}}}
		for format, write := range formats {
			var out bytes.Buffer
			if err := write(&out, chart); !errors.Is(err, ErrChart) || !strings.Contains(err.Error(), c.says) || out.Len() > 0 {
				t.Errorf("%s, %s: %v with %d bytes, want ErrChart with %q", name, format, err, out.Len(), c.says)
			}
		}
	}
	apart := Chart{Title: "t", Unit: Units, Lanes: []Lane{{Name: "rank 0", Exchanges: []Exchange{{fd, 0, 1}}}}}
	if page := drawn(t, HTML, apart); !strings.Contains(page, "The interactive drawing is not available") {
		t.Error("exchanges without a table are drawn by the script")
	}
}

// TestExchangesCanBeToldApart: the numbers can be read on a dispatch and a combine, and they differ from each other and from the actions.
func TestExchangesCanBeToldApart(t *testing.T) {
	for typ, c := range exchangeColours {
		if r := contrast(ink, c); r < 4.5 {
			t.Errorf("%v: contrast %.1f with the numbers, want 4.5", typ, r)
		}
	}
	for name, eye := range eyes {
		if d := distance(lab(dispatchColour, eye), lab(combineColour, eye)); d < 20 {
			t.Errorf("eyes with %s: a dispatch and a combine are %.0f apart, want 20", name, d)
		}
		for typ, c := range exchangeColours {
			everyFill(func(of scheduler.Type, shade, shades int, fill colour) {
				least := 20.0
				if name == "no short" {
					least = 12 // as for the actions
				}
				if d := distance(lab(c, eye), lab(fill, eye)); d < least {
					t.Errorf("eyes with %s: %v and %v shade %d of %d are %.0f apart, want %v", name, typ, of, shade, shades, d, least)
				}
			})
		}
	}
}
