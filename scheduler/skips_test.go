package scheduler

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// unet are the skips of a U-Net: each chunk of the way down to its partner on the way up.
func unet(chunks int) []Skip {
	var skips []Skip
	for from := 0; chunks-1-from > from+1; from++ {
		skips = append(skips, Skip{from, chunks - 1 - from})
	}
	return skips
}

func withSkips(t *testing.T, table *Table, skips ...Skip) *Table {
	t.Helper()
	if err := table.SetSkips(skips); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestSetSkips(t *testing.T) {
	table := generate(t, Spec{Ranks: 4, Chunks: 1, Microbatches: 4})
	for _, c := range []struct {
		skips []Skip
		want  string // of the error
	}{
		{nil, ""},
		{[]Skip{{0, 3}}, ""},
		{[]Skip{{1, 3}, {0, 3}, {0, 2}}, ""},
		{[]Skip{{-1, 3}}, "skip edge -1→3: the chunks are 0 to 3"},
		{[]Skip{{0, 4}}, "skip edge 0→4: the chunks are 0 to 3"},
		{[]Skip{{math.MinInt, math.MaxInt}}, "the chunks are 0 to 3"},
		{[]Skip{{3, 0}}, "skip edge 3→0: it must lead to a later chunk"},
		{[]Skip{{2, 2}}, "skip edge 2→2: it must lead to a later chunk"},
		{[]Skip{{1, 2}}, "skip edge 1→2: the chunks are neighbors"},
		{[]Skip{{0, 3}, {0, 2}, {0, 3}}, "skip edge 0→3: it occurs twice"},
		{slices.Repeat([]Skip{{0, 3}}, MaxSkips+1), "the limit is"},
	} {
		before := table.Skips
		err := table.SetSkips(c.skips)
		switch {
		case c.want == "" && (err != nil || len(table.Skips) != len(c.skips)):
			t.Errorf("%v: %v, the table has %v", c.skips, err, table.Skips)
		case c.want != "" && (!errors.Is(err, ErrTable) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 200):
			t.Errorf("%.20v: %v, want %s", c.skips, err, c.want)
		case c.want != "" && !slices.Equal(table.Skips, before):
			t.Errorf("%.20v: the table has %v after the error, %v before", c.skips, table.Skips, before)
		}
	}
	if want := []Skip{{0, 2}, {0, 3}, {1, 3}}; !slices.Equal(withSkips(t, table, Skip{1, 3}, Skip{0, 3}, Skip{0, 2}).Skips, want) {
		t.Errorf("skips %v, want %v", table.Skips, want)
	}
	// Whoever sets the field is told by whatever plays the table.
	for _, skips := range [][]Skip{{{1, 3}, {0, 3}}, {{0, 3}, {0, 2}}, {{0, 9}}} {
		table.Skips = skips
		_, atCheck := Check(table)
		_, atPlay := Simulate(table, UnitCosts)
		_, atEdges := table.Edges()
		for _, err := range []error{atCheck, atPlay, atEdges} {
			if !errors.Is(err, ErrTable) {
				t.Errorf("%v: %v, want ErrTable", skips, err)
			}
		}
	}
	if _, err := (&Table{}).Edges(); !errors.Is(err, ErrTable) {
		t.Errorf("edges of an empty table: %v, want ErrTable", err)
	}
}

func TestEdges(t *testing.T) {
	table := withSkips(t, generate(t, Spec{Ranks: 4, Chunks: 1, Microbatches: 4}), Skip{0, 3}, Skip{1, 3}, Skip{0, 2})
	edges, err := table.Edges()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind      EdgeKind
		chunk     int32
		ins, outs string
	}{
		{ForwardEdge, 0, "[]", "[0>1 0>2#0 0>3#1]"},
		{ForwardEdge, 1, "[0>1]", "[1>2 1>3#2]"},
		{ForwardEdge, 2, "[1>2 0>2#0]", "[2>3]"},
		{ForwardEdge, 3, "[2>3 0>3#1 1>3#2]", "[]"},
		{BackwardEdge, 3, "[]", "[3>2 3>0#1 3>1#2]"},
		{BackwardEdge, 2, "[3>2]", "[2>1 2>0#0]"},
		{BackwardEdge, 1, "[2>1 3>1#2]", "[1>0]"},
		{BackwardEdge, 0, "[1>0 2>0#0 3>0#1]", "[]"},
	} {
		text := func(edges []Edge) string {
			var parts []string
			for _, e := range edges {
				part := fmt.Sprintf("%d>%d", e.From, e.To)
				if e.isSkip() {
					part += fmt.Sprintf("#%d", e.Skip)
				}
				if e.Kind != c.kind {
					t.Errorf("%s edge %s of chunk %d is %s", c.kind, part, c.chunk, e.Kind)
				}
				parts = append(parts, part)
			}
			return fmt.Sprint(parts)
		}
		if ins, outs := text(edges.Ins(c.kind, c.chunk)), text(edges.Outs(c.kind, c.chunk)); ins != c.ins || outs != c.outs {
			t.Errorf("%s, chunk %d: in %s and out %s, want %s and %s", c.kind, c.chunk, ins, outs, c.ins, c.outs)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		again, _ := table.Edges()
		_, _ = again.Ins(ForwardEdge, 3), again.Outs(BackwardEdge, 3)
	}); n != 0 {
		t.Errorf("edges take %v allocations", n)
	}
	if check(t, table).Edges != edges {
		t.Error("the report's edges are others")
	}
	table.NumChunks = 5 // what was prepared does not fit any more
	if again, err := table.Edges(); err != nil || again == edges || len(again.Outs(ForwardEdge, 3)) != 1 {
		t.Errorf("edges of another size: %v, %v", again, err)
	}
}

// TestUNet: a U-Net under every kind of schedule. Its messages are bounded by credits, and
// where they take no time the table takes as long as without them.
func TestUNet(t *testing.T) {
	for _, c := range []struct {
		spec              Spec
		forward, backward string // credits of the skips
	}{
		// Rank 0 begins 0F3 when 3F0 begins. Gradients come as fast as they go.
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}, "[4]", "[3]"},
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8}, "[4]", "[4]"},
		{Spec{Schedule: ZBH1, Ranks: 4, Chunks: 1, Microbatches: 8}, "[4]", "[3]"},
		{Spec{Schedule: Interleaved, Ranks: 4, Chunks: 2, Microbatches: 8}, "[6 4 4]", "[4 4 4]"},
		{Spec{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 8}, "", ""},
		{Spec{Schedule: VHalf, Ranks: 4, Chunks: 2, Microbatches: 8}, "", ""},
		{Spec{Schedule: VMin, Ranks: 4, Chunks: 2, Microbatches: 8}, "", ""},
		{Spec{Schedule: DualPipeV, Ranks: 4, Chunks: 2, Microbatches: 10}, "", ""},
		{Spec{Schedule: UShape, Ranks: 4, Chunks: 2, Microbatches: 8}, "", ""},
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8, ForwardOnly: true}, "[4]", "[0]"},
	} {
		plain := generate(t, c.spec)
		table := withSkips(t, generate(t, c.spec), unet(plain.NumChunks)...)
		without, with := check(t, plain), check(t, table)
		credits := with.Credits
		if c.forward != "" && (fmt.Sprint(credits.SkipForward) != c.forward || fmt.Sprint(credits.SkipBackward) != c.backward) {
			t.Errorf("%s: credits %v and %v, want %s and %s", c.spec.Schedule, credits.SkipForward, credits.SkipBackward, c.forward, c.backward)
		}
		if !reflect.DeepEqual(without.Credits, Credits{Forward: credits.Forward, Backward: credits.Backward}) ||
			!slices.Equal(without.PeakInFlight, with.PeakInFlight) {
			t.Errorf("%s: %+v with skips, %+v without", c.spec.Schedule, with, without)
		}
		for i, s := range table.Skips {
			if credits.SkipForward[i] < 1 || credits.SkipBackward[i] < 1 && !c.spec.ForwardOnly {
				t.Errorf("%s: skip %v has %d and %d credits", c.spec.Schedule, s, credits.SkipForward[i], credits.SkipBackward[i])
			}
		}
		m := Machine{Costs: UnitCosts, Credits: &credits}
		bounded, err := m.Simulate(table)
		if err != nil {
			t.Fatalf("%s: %v", c.spec.Schedule, err)
		}
		if want := simulated(t, plain, UnitCosts); !reflect.DeepEqual(bounded, want) {
			t.Errorf("%s: it takes %v with skips and %v without", c.spec.Schedule, bounded.Makespan, want.Makespan)
		}
		checkSkipTimes(t, table, bounded, nil, &credits)
	}
}

// checkSkipTimes verifies the messages of skips by rules that are written once more here.
func checkSkipTimes(t interface {
	Helper()
	Fatalf(string, ...any)
}, table *Table, tl *Timeline, link Link, credits *Credits) {
	t.Helper()
	type visit struct {
		types      string
		chunk      int
		microbatch int32
	}
	start, end := map[visit]float64{}, map[visit]float64{}
	for r, row := range table.Ranks {
		for i, a := range row {
			v := visit{"IB", int(a.Chunk), a.Microbatch}
			if a.Type == F {
				v.types = "F"
			}
			if a.Type != W {
				start[v], end[v] = tl.Start[r][i], tl.End[r][i]
			}
		}
	}
	for i, s := range table.Skips {
		for _, types := range []string{"F", "IB"} {
			from, to, allowed := s.From, s.To, 0
			if credits != nil {
				allowed = credits.SkipForward[i]
			}
			if types == "IB" {
				if table.ForwardOnly {
					continue
				}
				from, to = to, from
				if credits != nil {
					allowed = credits.SkipBackward[i]
				}
			}
			way := 0.0
			if a, b := table.RankOf(from), table.RankOf(to); link != nil && a != b {
				way = link(a, b)
			}
			for m := range int32(table.Microbatches) {
				sent, taken := visit{types, from, m}, visit{types, to, m}
				if start[taken] < end[sent]+way-1e-9 {
					t.Fatalf("skip %v: %+v starts at %v, its input leaves at %v and takes %v", s, taken, start[taken], end[sent], way)
				}
				underWay := 0
				for other := range int32(table.Microbatches) {
					if start[visit{types, from, other}] <= start[sent]+1e-9 && start[visit{types, to, other}] > start[sent]+1e-9 {
						underWay++
					}
				}
				if credits != nil && underWay > allowed {
					t.Fatalf("skip %v: %d under way at %v, the credits are %d", s, underWay, start[sent], allowed)
				}
			}
		}
	}
}

// TestSkipTakesItsLink: a skip's message takes what lies between its ranks, however soon
// the chain is there, and nothing inside one rank; in every way to play.
func TestSkipTakesItsLink(t *testing.T) {
	far := func(from, to int) float64 {
		if from+3 == to || to+3 == from {
			return 10
		}
		return 0
	}
	for _, c := range []struct {
		spec  Spec
		skips []Skip
		want  float64
	}{
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1, ForwardOnly: true}, nil, 4},
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1, ForwardOnly: true}, []Skip{{0, 2}}, 4},
		// 0F0 1, message 11, 3F0 12
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1, ForwardOnly: true}, []Skip{{0, 3}}, 12},
		// 3B0 14, message 24, 0B0 26
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1}, []Skip{{0, 3}}, 26},
		// 3I0 13, message 23, 0I0 24, 0W0 25
		{Spec{Schedule: ZBH1, Ranks: 4, Chunks: 1, Microbatches: 1}, []Skip{{0, 3}, {1, 3}}, 25},
		{Spec{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 1, ForwardOnly: true}, []Skip{{0, 7}, {1, 6}}, 8},  // on one rank each
		{Spec{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 1, ForwardOnly: true}, []Skip{{0, 4}}, 1 + 10 + 4}, // 4F0 at 11
		// the chain's last hop takes 10
		{Spec{Schedule: UShape, Ranks: 4, Chunks: 2, Microbatches: 1, ForwardOnly: true}, []Skip{{0, 2}, {0, 4}}, 15},
	} {
		table := withSkips(t, generate(t, c.spec), c.skips...)
		m := Machine{Costs: UnitCosts, Link: far, Credits: &check(t, table).Credits}
		shared := m
		shared.Share = SharedCores(float64(c.spec.Ranks))
		own, err1 := m.Simulate(table)
		looped, err2 := shared.Simulate(table)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for how, tl := range map[string]*Timeline{"own cores": own, "shared cores": looped} {
			if tl.Makespan != c.want {
				t.Errorf("%+v with skips %v, %s: makespan %v, want %v", c.spec, c.skips, how, tl.Makespan, c.want)
			}
		}
	}
}

// TestSkipPeriod: steps that follow without a wait know skips, too: the link of the skip is
// in the ranks' circle, and in nothing else.
func TestSkipPeriod(t *testing.T) {
	m := Machine{Costs: UnitCosts, Link: func(from, to int) float64 {
		if from+2 == to || to+2 == from {
			return 10
		}
		return 0
	}}
	table := generate(t, Spec{Schedule: OneFOneB, Ranks: 3, Chunks: 1, Microbatches: 1})
	// There are 3 forwards and 3 backwards in a row; rank 0 begins again when it has ended.
	without, err := m.SteadyStateStep(table)
	if err != nil || without != 9 {
		t.Errorf("period %v without skips, want 9, %v", without, err)
	}
	// 0F0 1, message 11, 2F0 12, 2B0 14, message 24, 0B0 26.
	with, err := m.SteadyStateStep(withSkips(t, table, Skip{0, 2}))
	if err != nil || with != 26 {
		t.Errorf("period %v with a skip, want 26, %v", with, err)
	}
}

// TestTooFewSkipCredits: a skip without a credit stops everything, and the error names it.
func TestTooFewSkipCredits(t *testing.T) {
	table := withSkips(t, generate(t, Spec{Ranks: 4, Chunks: 1, Microbatches: 8}), unet(4)...)
	for _, c := range []struct {
		kind EdgeKind
		want string
	}{
		{ForwardEdge, "rank 0: 0F0 needs one of the 0 forward credits of skip edge 0→3; the next one returns with 3F0 on rank 3"},
		{BackwardEdge, "rank 3: 3B0 needs one of the 0 backward credits of skip edge 0→3; the next one returns with 0B0 on rank 0"},
	} {
		credits := check(t, table).Credits
		if c.kind == ForwardEdge {
			credits.SkipForward[0] = 0
		} else {
			credits.SkipBackward[0] = 0
		}
		m := Machine{Costs: UnitCosts, Credits: &credits}
		_, static := m.Simulate(table)
		m.Share = SharedCores(2)
		_, shared := m.Simulate(table)
		for _, err := range []error{static, shared} {
			if !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		}
	}
	credits := check(t, table).Credits
	credits.SkipBackward = nil
	if _, err := (Machine{Costs: UnitCosts, Credits: &credits}).Simulate(table); !errors.Is(err, ErrCosts) {
		t.Errorf("no credits for a skip: %v, want ErrCosts", err)
	}
}

func TestCreditsOfEdges(t *testing.T) {
	c := Credits{Forward: []int{1, 2, 3, 0}, Backward: []int{0, 4, 5, 6}, SkipForward: []int{7, 8}, SkipBackward: []int{9, 10}}
	edges, err := newEdges(4, []Skip{{0, 2}, {0, 3}})
	if err != nil {
		t.Fatal(err)
	}
	var forward, backward []int
	for chunk := range int32(4) {
		for _, e := range edges.Outs(ForwardEdge, chunk) {
			forward = append(forward, c.OfEdge(e))
		}
		for _, e := range edges.Outs(BackwardEdge, chunk) {
			backward = append(backward, c.OfEdge(e))
		}
	}
	if got, want := fmt.Sprint(forward, backward), "[1 7 8 2 3] [4 5 9 6 10]"; got != want {
		t.Errorf("credits %s, want %s", got, want)
	}
	if c.OfSkip(ForwardEdge, 1) != 8 || c.OfSkip(BackwardEdge, 1) != 10 {
		t.Errorf("credits %d and %d", c.OfSkip(ForwardEdge, 1), c.OfSkip(BackwardEdge, 1))
	}
}

// TestRendezvousOfSkips: activations that go one way at a time need no buffer, also where
// some skip ranks.
func TestRendezvousOfSkips(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		skips []Skip
		safe  bool
	}{
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1}, unet(4), true},
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}, unet(4), false}, // nor without
		{Spec{Schedule: None, Ranks: 1, Chunks: 4, Microbatches: 4}, unet(4), true},      // nothing is sent
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8, ForwardOnly: true}, unet(4), true},
	} {
		if got := RendezvousSafe(withSkips(t, generate(t, c.spec), c.skips...)); got != c.safe {
			t.Errorf("%+v: %v, want %v", c.spec, got, c.safe)
		}
	}
	table := generate(t, Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 1})
	table.Skips = []Skip{{0, 1}}
	if RendezvousSafe(table) {
		t.Error("a table with an impossible skip is safe")
	}
}

// TestSkipsOfFiles: a file says nothing of skips, and can't have sends beside them.
func TestSkipsOfFiles(t *testing.T) {
	table := withSkips(t, generate(t, Spec{Ranks: 4, Chunks: 1, Microbatches: 2}), unet(4)...)
	got, err := ReadCSV("plain.csv", table.CSV(), table.Skips...)
	if err != nil || !slices.Equal(got.Skips, table.Skips) {
		t.Errorf("skips %v, %v", got, err)
	}
	if got, err = ReadCSV("plain.csv", table.CSV()); err != nil || got.Skips != nil {
		t.Errorf("skips %v, %v", got, err)
	}
	_, err = ReadCSV("comms.csv", table.CSVWithCommunication(), table.Skips...)
	if want := "comms.csv: row 1, column 2: malformed table: 0SEND_F0, but the model has skip edges, the first 0→3"; !errors.Is(err,
		ErrTable) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err = ReadCSV("plain.csv", table.CSV(), Skip{0, 9}); !errors.Is(err, ErrTable) || !strings.HasPrefix(err.Error(), "plain.csv: ") {
		t.Errorf("an impossible skip: %v", err)
	}
}

// drawSkipTable draws a table of any schedule, and skips.
func drawSkipTable(rt *rapid.T) *Table {
	s := Spec{
		Schedule:     rapid.SampledFrom(Schedules()).Draw(rt, "schedule"),
		Ranks:        rapid.IntRange(1, 5).Draw(rt, "ranks"),
		ForwardOnly:  rapid.IntRange(0, 5).Draw(rt, "forward only") == 0,
		Microbatches: rapid.IntRange(1, 10).Draw(rt, "microbatches"),
	}
	s.Chunks = DefaultChunks(s.Schedule)
	if s.Schedule == None {
		s.Ranks = 1
	}
	if rapid.Bool().Draw(rt, "more chunks") {
		s.Chunks++
	}
	table, err := Generate(s)
	if errors.Is(err, ErrSpec) { // what every schedule can do
		s.Ranks, s.Chunks, s.Microbatches = min(s.Ranks, 4), DefaultChunks(s.Schedule), 12
		if s.Ranks == 1 && s.Schedule != None || s.Microbatches%s.Ranks != 0 {
			s.Ranks = 2
		}
		table, err = Generate(s)
	}
	if err != nil {
		rt.Fatalf("%+v: %v", s, err)
	}
	var skips []Skip
	for from := range table.NumChunks {
		for to := from + 2; to < table.NumChunks; to++ {
			if rapid.IntRange(0, 2).Draw(rt, "skip") == 0 {
				skips = append(skips, Skip{from, to})
			}
		}
	}
	if err := table.SetSkips(skips); err != nil {
		rt.Fatal(err)
	}
	return table
}

// TestAnySkips: every schedule's table with any skips runs under any costs and links within
// its credits, the same in the player and in the loop. With a credit fewer on a skip it
// runs, or the error names that skip.
func TestAnySkips(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawSkipTable(rt)
		report, err := Check(table)
		if err != nil {
			rt.Fatalf("%s\n%v", table, err)
		}
		bare := *table
		bare.Skips = nil
		without, err := Check(&bare)
		if err != nil || !slices.Equal(without.Credits.Forward, report.Credits.Forward) ||
			!slices.Equal(without.Credits.Backward, report.Credits.Backward) {
			rt.Fatalf("credits %+v with skips, %+v without, %v", report.Credits, without, err)
		}
		costs := Jittered(UnitCosts, rapid.Float64Range(0, 0.9).Draw(rt, "jitter"), rapid.Uint64().Draw(rt, "seed"))
		var link Link
		if way := rapid.Float64Range(0, 5).Draw(rt, "way"); rapid.Bool().Draw(rt, "link") {
			// From far ranks slower than through those between.
			link = func(from, to int) float64 { return way * float64((to-from)*(to-from)) }
		}
		m := Machine{Costs: costs, Link: link, Credits: &report.Credits}
		tl, err := m.Simulate(table)
		if err != nil {
			rt.Fatalf("%s\n%v", table, err)
		}
		checkSkipTimes(rt, table, tl, link, &report.Credits)
		ix, err := newIndex(table)
		if err != nil {
			rt.Fatal(err)
		}
		p := newPlayer(table, ix)
		p.Machine = m
		if err := p.playInLoop(); err != nil || !reflect.DeepEqual(p.timeline, tl) {
			rt.Fatalf("other times in the loop, %v", err)
		}
		if link == nil { // messages that take no time come before the chain's
			m := Machine{Costs: costs, Credits: &without.Credits}
			plain, err := m.Simulate(&bare)
			if err != nil || plain.Makespan > tl.Makespan+1e-9 {
				rt.Fatalf("it takes %v with skips, %v without, %v", tl.Makespan, plain, err)
			}
		}
		if !table.ForwardOnly {
			period, err := m.SteadyStateStep(table)
			if err != nil || period < slices.Max(tl.Busy)-1e-9 || period > tl.Makespan+1e-9 {
				rt.Fatalf("period %v, the makespan is %v, %v", period, tl.Makespan, err)
			}
		}
		for i, s := range table.Skips {
			for _, kind := range []EdgeKind{ForwardEdge, BackwardEdge} {
				takeOneCredit(rt, table, report.Credits, i, s, kind)
			}
		}
	})
}

func takeOneCredit(rt *rapid.T, table *Table, credits Credits, skip int, s Skip, kind EdgeKind) {
	fewer := credits
	fewer.SkipForward, fewer.SkipBackward = slices.Clone(credits.SkipForward), slices.Clone(credits.SkipBackward)
	if kind == ForwardEdge {
		fewer.SkipForward[skip]--
	} else {
		fewer.SkipBackward[skip]--
	}
	m := Machine{Costs: UnitCosts, Credits: &fewer}
	_, err := m.Simulate(table)
	m.Share = SharedCores(1)
	_, shared := m.Simulate(table)
	if (err == nil) != (shared == nil) {
		rt.Fatalf("%v on own cores, %v on shared ones", err, shared)
	}
	named := fmt.Sprintf("%s credits of skip edge %v;", kind, s)
	for _, err := range []error{err, shared} {
		if err != nil && (!errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), named) && !strings.Contains(err.Error(), "and so on")) {
			rt.Fatalf("%v\nwant %q", err, named)
		}
	}
}
