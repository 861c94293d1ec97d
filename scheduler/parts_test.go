package scheduler

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		parts, want []int
	}{
		{nil, nil}, {[]int{0, 0}, nil}, {[]int{3}, []int{0, 0, 0}}, {[]int{2, 2}, []int{0, 1, 0, 1}},
		{[]int{1, 3}, []int{0, 1, 1, 1}}, {[]int{3, 1, 2}, []int{0, 1, 2, 0, 2, 0}},
	} {
		if got := Turns(c.parts...); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.parts, got, c.want)
		}
	}
}

// oneLayer is the exchanges of a model with one layer with experts in each chunk.
var oneLayer = ExpertLayers(1)

const inParts = "(0F1.1;0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;0B0.2;0BC0.2;0F1.3;0B0.3)OVERLAP_F_B"

// TestCut: a table in parts is that of its text, and every number of it is that of the whole table: what ranks hold, credits, edges.
func TestCut(t *testing.T) {
	one, err := Generate(Spec{Schedule: None, Ranks: 1, Chunks: 1, Microbatches: 2, Pairs: true})
	if err != nil {
		t.Fatal(err)
	}
	cut, err := one.Cut(oneLayer)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cut.String(), "0F0 "+inParts+" 0B1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if whole, err := one.Cut(func(Action) []Type { return nil }); err != nil || whole.String() != one.String() {
		t.Errorf("without exchanges: %v, %v", whole, err)
	}
	for _, s := range pairSpecs {
		table, err := Generate(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		cut, err := table.Cut(oneLayer)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		want, err := Check(table)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		got, err := Check(cut)
		if err != nil {
			t.Fatalf("%+v, in parts: %v", s, err)
		}
		if !slices.Equal(got.PeakInFlight, want.PeakInFlight) || got.OutOfOrder != want.OutOfOrder || got.OutOfOrder.Any() {
			t.Errorf("%+v, in parts: %+v, want %+v", s, got, want)
		}
		if !reflect.DeepEqual(got.Credits, want.Credits) {
			t.Errorf("%+v, in parts: credits %+v, want %+v", s, got.Credits, want.Credits)
		}
		whole, parts := simulated(t, table, UnitCosts), simulated(t, cut, UnitCosts)
		if whole.Makespan != parts.Makespan || whole.BubbleFraction != parts.BubbleFraction || !slices.Equal(whole.Busy, parts.Busy) {
			t.Errorf("%+v, in parts: the step takes %v with a bubble of %v, want %v and %v", s, parts.Makespan, parts.BubbleFraction,
				whole.Makespan, whole.BubbleFraction)
		}
		if err := CheckExchanges(oneLayer, table, cut, table); err == nil {
			t.Errorf("%+v: whole pairs exchange one after the other, parts in turns", s)
		}
		if err := CheckExchanges(oneLayer, cut, cut); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
		again, err := ReadCSV("cut.csv", cut.CSV())
		if err != nil {
			t.Fatalf("%+v: %v\n%s", s, err, cut.CSV())
		}
		if again.CSV() != cut.CSV() || again.NumChunks != cut.NumChunks || again.Microbatches != cut.Microbatches {
			t.Errorf("%+v: read back as\n%v", s, again)
		}
	}
}

var pairSpecs = []Spec{
	{Schedule: None, Ranks: 1, Chunks: 1, Microbatches: 4, Pairs: true},
	{Schedule: None, Ranks: 1, Chunks: 3, Microbatches: 4, Pairs: true},
	{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 2, Pairs: true},
	{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 9, Pairs: true},
	{Schedule: EagerOneFOneB, Ranks: 3, Chunks: 1, Microbatches: 8, Pairs: true},
	{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 6, Pairs: true},
	{Schedule: DualPipeV, Ranks: 4, Chunks: 2, Microbatches: 12, Pairs: true},
}

// TestPairs: with pairs, a rank of 1F1B runs each backward with a forward, and the last rank never waits for another in its steady state.
func TestPairs(t *testing.T) {
	for ranks := 1; ranks <= 5; ranks++ {
		for m := 2; m <= 12; m++ {
			s := Spec{Schedule: OneFOneB, Ranks: ranks, Chunks: 1, Microbatches: m, Pairs: true}
			table, err := Generate(s)
			if err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			tl, err := Simulate(table, UnitCosts)
			if err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			// F takes 1, B 2, and a pair 3: the last rank has a forward, m−1 pairs and a backward. Before and after that go a
			// forward and a backward on each other rank, or a pair.
			if least := float64(3*m + 3*(ranks-1)); tl.Makespan < least || tl.Makespan > least+3*float64(ranks-1) {
				t.Errorf("%d ranks, %d microbatches: the step takes %v, want %v or a little more", ranks, m, tl.Makespan, least)
			}
			for r, row := range table.Ranks {
				pairs := 0
				for i := 0; i < len(row); i += Width(row, i) {
					pairs += Width(row, i) - 1
				}
				if want := max(0, m-1-min(m-1, 2*(ranks-1-r))); pairs != want {
					t.Errorf("%d ranks, %d microbatches: rank %d has %d pairs, want %d:\n%v", ranks, m, r, pairs, want, table)
				}
			}
		}
	}
	for _, s := range []Spec{
		{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 4, Pairs: true},
		{Schedule: ZBH1, Ranks: 2, Chunks: 1, Microbatches: 4, Pairs: true},
		{Schedule: ZBH2, Ranks: 2, Chunks: 1, Microbatches: 4, Pairs: true},
		{Schedule: Interleaved, Ranks: 2, Chunks: 2, Microbatches: 4, Pairs: true},
		{Schedule: Auto, Ranks: 2, Chunks: 1, Microbatches: 4, Pairs: true},
	} {
		table, err := Generate(s)
		if !errors.Is(err, ErrSpec) || table != nil || !strings.Contains(err.Error(), "choose dualpipev, 1f1b, eager-1f1b or none") {
			t.Errorf("%+v: %v, %v", s, table, err)
		}
	}
	one := Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 1, Pairs: true}
	if _, err := Generate(one); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "use more microbatches") {
		t.Errorf("%+v: %v", one, err)
	}
	s := Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 4, Pairs: true, ForwardOnly: true}
	if _, err := Generate(s); err != nil {
		t.Errorf("a validation: %v", err)
	}
}

// TestBrokenParts: what Check says of parts that do not fit.
func TestBrokenParts(t *testing.T) {
	table := func(cell string) *Table { return parseTable(t, "0F0 "+cell+" 0B1") }
	if _, err := Check(table(inParts)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"0FD1.1;", "", "0F1.2 does not follow the exchange after part 1"},
		{"0F1.2;", "", "0FC1.2 does not follow part 2"},
		{"0F1.3;", "", "0F1.1 has no part 3"},
		{"0B0.3)", "0W0.3)", "0W0.3 stands among the parts of others, but a weight gradient has no parts"},
		{"0FC1.2", "0BC1.2", "0BC1.2 stands among the parts of 0B0.1"},
		{"0F1.1;0FD1.1", "0FD1.1;0F1.1", "0FD1.1 comes before the first part"},
		{"0FD1.1", "0FC1.1", "0FC1.1 brings back tokens that no dispatch before it has sent"},
		{"0F1.2", "0F0.2", "0F0.2 stands among the parts of 0F1.1"},
		{"0F1.3", "0F1.2", "0F1.2 does not follow the exchange after part 1"},
		{"0BC0.2;", "0BC0.2;0BC0.2;", "0BC0.2 does not follow part 2"},
		{"0B0", "0B1", "0B1.1 depends on 0F1.1, so they cannot run together"},
		{"0B0.3", "0F2.1", "0F2.1 stands among the parts of 0F1.1"},
	} {
		text := strings.ReplaceAll(inParts, c.old, c.new)
		if c.old == "0B0" { // and its exchanges
			text = strings.NewReplacer("0B0", "0B1", "0BD0", "0BD1", "0BC0", "0BC1").Replace(inParts)
		}
		if _, err := Check(table(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", text, err, c.want)
		}
	}
	for cell, want := range map[string]string{
		"0FD1":                                   "FD stands alone",
		"(0F1.1;0FD1)OVERLAP_F_B":                `"0FD1" has no number of a part`,
		"(0F1.0;0FD1.1)OVERLAP_F_B":              "part 0: want 1 to 4096",
		"(0F1.1;0FD1.65536)OVERLAP_F_B":          "part 65536",
		"(0F1.1;0SEND_F1.1)OVERLAP_F_B":          `unknown type "SEND_F"`,
		"(0F1.1;0FD1.1x)OVERLAP_F_B":             `unexpected "x" after the part`,
		"(0F1.1;0FD1.1":                          `")OVERLAP_F_B" is missing at the end`,
		"(0F1.1;)OVERLAP_F_B":                    `"" has no number of a part`,
		"(0F1.01;0FD1.1)OVERLAP_F_B":             "01 has a leading zero",
		"0F1.1":                                  `unexpected ".1" after the microbatch`,
		"(0F1.1)OVERLAP_F_B":                     "0F1.1 stands alone: the parts of an action run as one",
		"(0F1.1;0FD1.1;0F1.2;0FC1.2)OVERLAP_F_B": "0F1.1 has no part 3",
	} {
		_, err := ReadCSV("", "0F0,"+cell+",0B0,0B1\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", cell, err, want)
		}
	}
}

// TestCheckExchanges: ranks that share experts exchange tokens in one order, and as often as the model does.
func TestCheckExchanges(t *testing.T) {
	good := parseTable(t, "0F0 "+inParts+" 0B1")
	for _, c := range []struct{ old, new, want string }{
		{"0F1.2;0FC1.2;0B0.2;0BC0.2", "0B0.2;0BC0.2;0F1.2;0FC1.2", "exchange 5 of rank 0 is 0FC1.2 in table 0, but 0BC0.2 in table 1"},
		{"0FC1.2;0B0.2;0BC0.2;0F1.3;", "0FC1.2;0F1.3;0B0.2;0BC0.2;", ""}, // the exchanges have the same order
		{";0FC1.2;0B0.2;0BC0.2;0F1.3", ";0B0.2;0BC0.2", "0F1.2 is the last part of its action, which has 2 exchanges"},
		{"0FC1.2", "0FD1.2", "0FD1.2: exchange 2 of 0F1 is FC in this model"},
		{"0F1.3;", "0F1.3;0FD1.3;0F1.4;", "0FD1.3: 0F1 has 2 exchanges of tokens in this model"},
	} {
		other := parseTable(t, "0F0 "+strings.Replace(inParts, c.old, c.new, 1)+" 0B1")
		if _, err := Check(other); err != nil {
			t.Errorf("%s: %v", c.new, err)
		}
		err := CheckExchanges(oneLayer, good, other)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrExchange) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.new, err, c.want)
		}
	}
	if err := CheckExchanges(oneLayer, good, parseTable(t, "0F0 0F1 0B0 0B1")); !errors.Is(err, ErrExchange) {
		t.Errorf("whole actions: %v", err)
	}
	if err := CheckExchanges(oneLayer, good, parseTable(t, "0F0 1F0\n0B0")); !errors.Is(err, ErrExchange) {
		t.Errorf("another number of ranks: %v", err)
	}
}

// TestSimulateParts: exchanges take the link and not the rank.
func TestSimulateParts(t *testing.T) {
	table := parseTable(t, "0F0 "+inParts+" 0B1")
	for _, c := range []struct {
		part, exchange float64
		want           float64 // the time of the pair
	}{
		{1, 0, 6},
		{1, 1, 6},  // all hidden
		{1, 3, 14}, // the link is the limit: a part, four exchanges, a part
		{0, 2, 8},
	} {
		tl, err := Machine{
			Costs: func(_ int, a Action) float64 {
				if a.Type.IsExchange() {
					return c.exchange
				}
				return 0
			},
			PartCosts: func(int, Action) float64 { return c.part },
		}.Simulate(table)
		if err != nil {
			t.Fatal(err)
		}
		if tl.Makespan != c.want || tl.Busy[0] != 6*c.part {
			t.Errorf("parts of %v and exchanges of %v: %v in all and %v busy, want %v and %v", c.part, c.exchange, tl.Makespan, tl.Busy[0], c.want,
				6*c.part)
		}
		step := StepOf(table, tl)
		if err := step.Check(); err != nil {
			t.Error(err)
		}
		gaps, err := step.Idle()
		if err != nil {
			t.Fatal(err)
		}
		idle := 0.0
		for _, g := range gaps[0] {
			if idle += g.End - g.Start; g.Cause != Experts {
				t.Errorf("a gap of cause %v", g.Cause)
			}
		}
		if idle != c.want-6*c.part {
			t.Errorf("parts of %v and exchanges of %v: gaps of %v, want %v", c.part, c.exchange, idle, c.want-6*c.part)
		}
		if back := step.Timeline(); back.Makespan != tl.Makespan || back.Busy[0] != tl.Busy[0] {
			t.Errorf("as a step: %v and %v busy", back.Makespan, back.Busy[0])
		}
	}
	// With shared cores, and with all cores for each, the loop has the times of the player.
	m := Machine{Costs: func(int, Action) float64 { return 1 }, PartCosts: func(_ int, a Action) float64 { return 1 + float64(a.Part)/4 }}
	shared := m
	shared.Share = func(int) float64 { return 1 }
	for _, s := range pairSpecs {
		whole, err := Generate(s)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := whole.Cut(oneLayer)
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Simulate(cut)
		if err != nil {
			t.Fatal(err)
		}
		got, err := shared.Simulate(cut)
		if err != nil {
			t.Fatal(err)
		}
		if d := got.Makespan - want.Makespan; d > 1e-9 || d < -1e-9 {
			t.Errorf("%+v: the loop takes %v, the player %v", s, got.Makespan, want.Makespan)
		}
		if !sameTimes(got, want) {
			t.Errorf("%+v: the loop has other times than the player:\n%v\n%v", s, got, want)
		}
		p, err := StepOf(cut, want).Critical()
		if err != nil {
			t.Fatal(err)
		}
		if d := p.TotalMS() - want.Makespan; d > 1e-9 || d < -1e-9 {
			t.Errorf("%+v: the critical path takes %v of %v", s, p.TotalMS(), want.Makespan)
		}
	}
}

// sameTimes reports whether two timelines of one table are equal but for the rounding of sums.
func sameTimes(a, b *Timeline) bool {
	same := func(x, y float64) bool { return math.Abs(x-y) < 1e-9*max(1, math.Abs(y)) }
	rows := func(x, y []float64) bool { return slices.EqualFunc(x, y, same) }
	return same(a.Makespan, b.Makespan) && same(a.BubbleFraction, b.BubbleFraction) && rows(a.Busy, b.Busy) && rows(a.Idle, b.Idle) &&
		slices.EqualFunc(a.Start, b.Start, rows) && slices.EqualFunc(a.End, b.End, rows)
}

// TestPartsCostTheWhole: the parts of an action cost what the action costs, so a cut table whose exchanges take no time takes as long as
// the whole one, on every machine.
func TestPartsCostTheWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		spec := rapid.SampledFrom(pairSpecs).Draw(rt, "spec")
		whole, err := Generate(spec)
		if err != nil {
			rt.Fatal(err)
		}
		cut, err := whole.Cut(ExpertLayers(rapid.IntRange(1, 5).Draw(rt, "layers")))
		if err != nil {
			rt.Fatal(err)
		}
		m := Machine{Costs: Slowed(Jittered(UnitCosts, rapid.Float64Range(0, 0.9).Draw(rt, "jitter"), rapid.Uint64().Draw(rt, "seed")), 0,
			rapid.Float64Range(0.5, 2).Draw(rt, "slower"))}
		if link := rapid.Float64Range(0, 1).Draw(rt, "link"); link > 0.5 {
			m.Link = func(from, to int) float64 { return link * float64(1+from) }
		}
		if cores := rapid.IntRange(0, 3).Draw(rt, "cores"); cores > 0 {
			m.Share = SharedCores(float64(cores))
		}
		want, err := m.Simulate(whole)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := m.Simulate(cut)
		if err != nil {
			rt.Fatal(err)
		}
		if d := got.Makespan/want.Makespan - 1; math.Abs(d) > 1e-9 || math.Abs(got.BubbleFraction-want.BubbleFraction) > 1e-9 {
			rt.Errorf("in parts the step takes %v with a bubble of %v, whole %v and %v", got.Makespan, got.BubbleFraction, want.Makespan,
				want.BubbleFraction)
		}
		for r, row := range whole.Ranks {
			if math.Abs(got.Busy[r]-want.Busy[r]) > 1e-9*want.Busy[r] {
				rt.Errorf("rank %d is busy for %v in parts, and %v whole", r, got.Busy[r], want.Busy[r])
			}
			fractions, costs := make(map[Action]float64), make(map[Action]float64)
			for i, a := range cut.Ranks[r] {
				if a.Type.IsExchange() {
					if cut.Fraction(r, i) != 0 || got.End[r][i] != got.Start[r][i] {
						rt.Fatalf("%v of rank %d has a share of %v and takes from %v to %v", a, r, cut.Fraction(r, i), got.Start[r][i],
							got.End[r][i])
					}
					continue
				}
				fractions[a.whole()] += cut.Fraction(r, i)
				costs[a.whole()] += got.End[r][i] - got.Start[r][i]
			}
			for _, a := range row {
				a = a.whole()
				if math.Abs(fractions[a]-1) > 1e-9 {
					rt.Errorf("the parts of %v are %v of it", a, fractions[a])
				}
				if c := m.Costs(r, a); m.Share == nil && math.Abs(costs[a]-c) > 1e-9*got.Makespan {
					rt.Errorf("the parts of %v take %v, the action %v", a, costs[a], c)
				}
			}
		}
		step := StepOf(cut, got)
		if err := step.Check(); err != nil {
			rt.Error(err)
		}
	})
}
