package scheduler

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestBrokenTables: every way to break a table has its own sentinel. The texts
// of the errors are in testdata/broken.txt.
func TestBrokenTables(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Table)
		want  error
	}{
		{"no ranks", func(t *Table) { t.Ranks = nil }, ErrTable},
		{"no chunks", func(t *Table) { t.NumChunks = 0 }, ErrTable},
		{"no microbatches", func(t *Table) { t.Microbatches = -1 }, ErrTable},
		{"absurd sizes", func(t *Table) { t.NumChunks, t.Microbatches = math.MaxInt, math.MaxInt }, ErrTable},
		{"another placement", func(t *Table) { t.Placement = V }, ErrTable},
		{"unknown placement", func(t *Table) { t.Placement = 7 }, ErrTable},
		{"unknown type", func(t *Table) { t.Ranks[0][0].Type = 0 }, ErrTable},
		{"a type above all", func(t *Table) { t.Ranks[0][0].Type = 99 }, ErrTable},
		{"a send", func(t *Table) { t.Ranks[0][0].Type = sendF }, ErrTable},
		{"half a pair", func(t *Table) { t.Ranks[1][7].Overlap = true }, ErrTable},
		{"a pair of one visit", func(t *Table) { t.Ranks[1][0].Overlap = true }, ErrTable},
		{"negative chunk", func(t *Table) { t.Ranks[0][0].Chunk = -1 }, ErrTable},
		{"chunk above", func(t *Table) { t.Ranks[0][0].Chunk = 2 }, ErrTable},
		{"negative microbatch", func(t *Table) { t.Ranks[0][0].Microbatch = -1 }, ErrTable},
		{"microbatch above", func(t *Table) { t.Ranks[1][3].Microbatch = 4 }, ErrTable},
		{"backward in forward-only", func(t *Table) { t.ForwardOnly = true }, ErrTable},
		{"wrong rank", func(t *Table) { t.Ranks[0][0].Chunk = 1 }, ErrRank},
		{"twice", func(t *Table) { t.Ranks[0] = append(t.Ranks[0], Action{Chunk: 0, Type: B, Microbatch: 3}) }, ErrDuplicate},
		{"I after B", func(t *Table) { t.Ranks[0] = append(t.Ranks[0], Action{Chunk: 0, Type: I, Microbatch: 3}) }, ErrDuplicate},
		{"missing", func(t *Table) { t.Ranks[1] = t.Ranks[1][:7] }, ErrIncomplete},
		{"a rank without actions", func(t *Table) { t.Ranks[1] = nil }, ErrIncomplete},
		{"a microbatch more", func(t *Table) { t.Microbatches++ }, ErrIncomplete},
		{"many microbatches more", func(t *Table) { t.Microbatches = MaxActions }, ErrIncomplete},
		{"B before F", func(t *Table) { r := t.Ranks[1]; r[2], r[3] = r[3], r[2] }, ErrOrder},
		{"W before I", func(t *Table) {
			t.Ranks[1][7].Type = W
			t.Ranks[1] = append(t.Ranks[1], Action{Chunk: 1, Type: I, Microbatch: 3})
		}, ErrOrder},
		{"deadlock", func(t *Table) {
			t.Ranks[0] = []Action{{Chunk: 0, Type: F, Microbatch: 1}, {Chunk: 0, Type: B, Microbatch: 1}, {Chunk: 0, Type: F, Microbatch: 0},
				{Chunk: 0, Type: B, Microbatch: 0}, {Chunk: 0, Type: F, Microbatch: 2}, {Chunk: 0, Type: B, Microbatch: 2},
				{Chunk: 0, Type: F, Microbatch: 3}, {Chunk: 0, Type: B, Microbatch: 3}}
		}, ErrDeadlock},
	} {
		table := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 4})
		// 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
		// 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
		c.spoil(table)
		if _, err := Check(table); !errors.Is(err, c.want) {
			t.Errorf("%s: Check says %v, want %v", c.name, err, c.want)
		}
		if _, err := Simulate(table, UnitCosts); !errors.Is(err, c.want) {
			t.Errorf("%s: Simulate says %v, want %v", c.name, err, c.want)
		}
	}
}

// TestLongCircle: an error about many ranks stays short.
func TestLongCircle(t *testing.T) {
	table := generate(t, Spec{Ranks: 10, Chunks: 2, Microbatches: 10})
	row := table.Ranks[0]
	for i, a := range row {
		if a == (Action{Chunk: 10, Type: F, Microbatch: 0}) { // rank 0 takes its second chunk first
			copy(row[1:i+1], row[:i])
			row[0] = a
		}
	}
	_, err := Check(table)
	if !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), "and so on over 2 more ranks") {
		t.Errorf("got %v", err)
	}
}

func TestCreditsOf(t *testing.T) {
	c := Credits{Forward: []int{1, 2, 0}, Backward: []int{0, 3, 4}}
	for chunk := range 3 {
		if c.Of(ForwardEdge, chunk) != c.Forward[chunk] || c.Of(BackwardEdge, chunk) != c.Backward[chunk] {
			t.Errorf("chunk %d: credits %d and %d", chunk, c.Of(ForwardEdge, chunk), c.Of(BackwardEdge, chunk))
		}
	}
}

// TestTooFewCredits: with no credit on an edge nothing can pass it, and the
// error says which one.
func TestTooFewCredits(t *testing.T) {
	table := generate(t, Spec{Ranks: 3, Chunks: 1, Microbatches: 4})
	credits := check(t, table).Credits
	credits.Backward[2] = 0
	_, err := Machine{Costs: UnitCosts, Credits: &credits}.Simulate(table)
	want := "rank 2: 2B0 needs one of the 0 backward credits of chunk 2; the next one returns with 1B0 on rank 1"
	if !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := (Machine{Costs: UnitCosts, Credits: &Credits{}}).Simulate(table); !errors.Is(err, ErrCosts) {
		t.Errorf("no credits at all: %v, want ErrCosts", err)
	}
}

// TestCreditsBind: with one credit the sender waits until its last output is
// taken.
func TestCreditsBind(t *testing.T) {
	table := generate(t, Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 3})
	slowReceiver := func(rank int, _ Action) float64 { return float64(1 + 9*rank) }
	tl, err := Machine{Costs: slowReceiver, Credits: &Credits{Forward: []int{1, 0}, Backward: []int{0, 1}}}.Simulate(table)
	if err != nil {
		t.Fatal(err)
	}
	// 0F1 starts when 1F0 does, and 0F2 when 1F1 does.
	if got, want := fmt.Sprint(tl.Start[0][:3], tl.Start[1][:3]), "[0 1 11] [1 11 21]"; got != want {
		t.Errorf("forwards start at %s, want %s", got, want)
	}
}

func drawSpec(t *rapid.T) Spec {
	s := Spec{
		Schedule:     rapid.SampledFrom([]string{"", None, GPipe, OneFOneB, Interleaved}).Draw(t, "schedule"),
		Ranks:        rapid.IntRange(1, 6).Draw(t, "ranks"),
		Chunks:       1,
		Microbatches: rapid.IntRange(1, 14).Draw(t, "microbatches"),
		ForwardOnly:  rapid.Bool().Draw(t, "forwardOnly"),
	}
	switch s.Schedule {
	case "":
		s.Chunks = rapid.IntRange(1, 3).Draw(t, "chunks")
	case None:
		s.Ranks, s.Chunks = 1, rapid.IntRange(1, 3).Draw(t, "chunks")
	case Interleaved:
		s.Chunks = rapid.IntRange(2, 3).Draw(t, "chunks")
		s.MicrobatchGroupSize = rapid.IntRange(s.Ranks, s.Ranks+4).Draw(t, "group")
		s.Microbatches = s.MicrobatchGroupSize * rapid.IntRange(1, 3).Draw(t, "groups")
	}
	if s.Schedule == "" && DefaultSchedule(s.Ranks, s.Chunks) == Interleaved {
		s.Microbatches = s.Ranks * (1 + s.Microbatches/6)
	}
	return s
}

// drawCosts gives each action a random cost, also zero.
func drawCosts(t *rapid.T) Costs {
	pool := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 40).Draw(t, "costs")
	return func(rank int, a Action) float64 {
		return pool[(int(a.Chunk)*31+int(a.Microbatch)*7+int(a.Type)*3+rank)%len(pool)]
	}
}

// splitBackwards turns each B into I and W, and lets the W wait for a while, as
// zero-bubble schedules do.
func splitBackwards(t *rapid.T, table *Table) {
	for r, row := range table.Ranks {
		var out, pending []Action
		for _, a := range row {
			if len(pending) > 0 && rapid.Bool().Draw(t, "flush") {
				out, pending = append(out, pending...), nil
			}
			if a.Type == B {
				out, pending = append(out, Action{Chunk: a.Chunk, Type: I, Microbatch: a.Microbatch}),
					append(pending, Action{Chunk: a.Chunk, Type: W, Microbatch: a.Microbatch})
				continue
			}
			out = append(out, a)
		}
		table.Ranks[r] = append(out, pending...)
	}
}

// TestAnySpec: any legal table runs under any costs, within its credits, and
// every action starts after all it waits for.
func TestAnySpec(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		spec := drawSpec(rt)
		table, err := Generate(spec)
		if err != nil {
			rt.Fatalf("%+v: %v", spec, err)
		}
		if rapid.Bool().Draw(rt, "split") {
			splitBackwards(rt, table)
		}
		report, err := Check(table)
		if err != nil {
			rt.Fatalf("%+v: %v", spec, err)
		}
		if report.OutOfOrder.Any() {
			rt.Fatalf("%+v: weight gradients out of order", spec)
		}
		costs := drawCosts(rt)
		free, err := Simulate(table, costs)
		if err != nil {
			rt.Fatalf("%+v: %v", spec, err)
		}
		checkTimeline(rt, table, free, costs, nil)
		bounded, err := Machine{Costs: costs, Credits: &report.Credits}.Simulate(table)
		if err != nil {
			rt.Fatalf("%+v: %v", spec, err)
		}
		checkTimeline(rt, table, bounded, costs, &report.Credits)
		if bounded.Makespan < free.Makespan {
			rt.Fatalf("%+v: credits make it faster: %v, %v without", spec, bounded.Makespan, free.Makespan)
		}
	})
}

// checkTimeline verifies the times of a play by rules that are written once more
// here, with maps.
func checkTimeline(t *rapid.T, table *Table, tl *Timeline, costs Costs, credits *Credits) {
	start, end := map[Action]float64{}, map[Action]float64{}
	busy := 0.0
	for r, row := range table.Ranks {
		for i, a := range row {
			start[a], end[a] = tl.Start[r][i], tl.End[r][i]
			busy += costs(r, a)
			if i > 0 && start[a] < tl.End[r][i-1] {
				t.Fatalf("%v starts at %v, before its rank is free at %v", a, start[a], tl.End[r][i-1])
			}
			if got := end[a] - start[a]; math.Abs(got-costs(r, a)) > 1e-9 {
				t.Fatalf("%v takes %v, want %v", a, got, costs(r, a))
			}
		}
	}
	after := func(a Action, types string, chunk int32) {
		for _, typ := range types {
			if e, ok := end[Action{Chunk: chunk, Type: parseType(string(typ)), Microbatch: a.Microbatch}]; ok && start[a] < e {
				t.Fatalf("%v starts at %v, its input %d%c%d ends at %v", a, start[a], chunk, typ, a.Microbatch, e)
			}
		}
	}
	for a := range start {
		switch a.Type {
		case F:
			after(a, "F", a.Chunk-1)
		case I, B:
			after(a, "F", a.Chunk)
			after(a, "IB", a.Chunk+1)
		case W:
			after(a, "I", a.Chunk)
		}
	}
	if want := 1 - busy/(tl.Makespan*float64(table.NumRanks())); tl.Makespan > 0 && math.Abs(tl.BubbleFraction-want) > 1e-9 {
		t.Fatalf("bubble %v, want %v", tl.BubbleFraction, want)
	}
	if credits == nil {
		return
	}
	for s := range table.NumChunks - 1 {
		checkEdge(t, start, int32(s), int32(s+1), "F", credits.Forward[s])
		checkEdge(t, start, int32(s+1), int32(s), "IB", credits.Backward[s+1])
	}
}

// checkEdge counts what is under way right after each start of a sender; what is
// consumed at that instant has given its credit back.
func checkEdge(t *rapid.T, start map[Action]float64, from, to int32, types string, credits int) {
	var sent, consumed []float64
	for a, at := range start {
		if strings.Contains(types, a.Type.String()) && a.Chunk == from {
			sent = append(sent, at)
		}
		if strings.Contains(types, a.Type.String()) && a.Chunk == to {
			consumed = append(consumed, at)
		}
	}
	for _, now := range sent {
		underWay := 0
		for _, at := range sent {
			if at <= now {
				underWay++
			}
		}
		for _, at := range consumed {
			if at <= now {
				underWay--
			}
		}
		if underWay > credits {
			t.Fatalf("%d outputs from chunk %d to %d under way at %v, credits are %d", underWay, from, to, now, credits)
		}
	}
}

func TestImpossibleCosts(t *testing.T) {
	table := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 2})
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, err := Simulate(table, func(_ int, a Action) float64 {
			if a == (Action{Chunk: 1, Type: B, Microbatch: 1}) {
				return bad
			}
			return 1
		})
		if !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), "1B1 on rank 1") {
			t.Errorf("cost %v: %v, want ErrCosts about 1B1 on rank 1", bad, err)
		}
	}
	tl := simulated(t, table, func(int, Action) float64 { return 0 })
	if tl.Makespan != 0 || tl.BubbleFraction != 0 {
		t.Errorf("free actions: makespan %v, bubble %v", tl.Makespan, tl.BubbleFraction)
	}
}

func BenchmarkCheck(b *testing.B) {
	table, err := Generate(Spec{Ranks: 64, Chunks: 4, Microbatches: 512})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Check(table); err != nil {
			b.Fatal(err)
		}
	}
}
