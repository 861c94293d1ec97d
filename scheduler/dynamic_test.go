package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func priorities(t *testing.T, table *Table, bound int) *Priorities {
	t.Helper()
	r, err := NewPriorities(table, bound)
	if err != nil {
		t.Fatalf("%s\n%v", table, err)
	}
	return r
}

// checkDynamic plays a table in surroundings that a number draws, and says whether what
// comes out is what it should be. Bounds go from what lets one microbatch pass, below the
// table's peaks, to more than these; links from none to longer than an action.
func checkDynamic(t *testing.T, table *Table, seed uint64) {
	t.Helper()
	draw := func(n int) int {
		seed = mix(seed)
		return int(seed % uint64(n))
	}
	ranks := table.NumRanks()
	costs := Costs(UnitCosts)
	if draw(2) == 0 {
		costs = Slowed(costs, draw(ranks), 1.5)
	}
	m := Machine{Costs: Jittered(costs, float64(draw(4))/4, seed)}
	if way := []float64{0, 0.1, 3}[draw(3)]; way > 0 {
		m.Link = func(from, to int) float64 { return way * math.Abs(float64(from-to)) }
	}
	switch draw(3) {
	case 0:
		m.Credits = &check(t, table).Credits
	case 1:
		one := slices.Repeat([]int{1}, table.NumChunks)
		m.Credits = &Credits{Forward: one, Backward: one}
	}
	if draw(4) == 0 {
		m.Share = SharedCores(1.5)
	}
	bound := max((table.NumChunks+ranks-1)/ranks, slices.Max(peakInFlight(table))-4+draw(6))
	if table.Placement == U {
		bound = max(bound, 2)
	}

	out, tl, err := m.SimulateDynamic(priorities(t, table, bound))
	if err != nil {
		t.Fatalf("bound %d\n%s\n%v", bound, table, err)
	}
	report := check(t, out)
	if report.OutOfOrder.Any() {
		t.Errorf("bound %d: weight gradients out of order\n%s", bound, out)
	}
	if peak := slices.Max(report.PeakInFlight); peak > bound && !table.ForwardOnly {
		t.Errorf("a rank holds %d, the bound is %d\n%s", peak, bound, out)
	}
	for rank := range out.Ranks { // its priorities can be made only if microbatches ascend
		if n := len(out.Ranks[rank]); n != len(table.Ranks[rank]) {
			t.Errorf("rank %d: %d actions came out of %d", rank, n, len(table.Ranks[rank]))
		}
	}
	priorities(t, out, bound)
	// The times are those of the order: nothing began before it could, and what a rank
	// stayed idle for can only have made it later.
	again, err := m.Simulate(out)
	if err != nil {
		t.Fatalf("what came out does not run again: %v", err)
	}
	for r, row := range out.Ranks {
		for i, a := range row {
			if m.Share != nil { // an action that waits lets others be faster
				break
			}
			if tl.Start[r][i] < again.Start[r][i]-1e-9 {
				t.Fatalf("%v begins at %v, and can't before %v", a, tl.Start[r][i], again.Start[r][i])
			}
			if took := tl.End[r][i] - tl.Start[r][i]; math.Abs(took-m.Costs(r, a)) > 1e-9 {
				t.Fatalf("%v takes %v, want %v", a, took, m.Costs(r, a))
			}
		}
	}
}

// TestDynamicEverywhere plays every schedule's tables in all kinds of surroundings.
func TestDynamicEverywhere(t *testing.T) {
	seed := uint64(0)
	specs(func(s Spec) {
		if !legal(s) || s.MicrobatchGroupSize > 0 && s.MicrobatchGroupSize != s.Ranks+1 {
			return
		}
		for _, s.ForwardOnly = range []bool{false, true} {
			seed++
			if s.ForwardOnly && seed%8 != 0 {
				continue
			}
			table := generate(t, s)
			checkDynamic(t, table, seed)
			if t.Failed() {
				t.Fatalf("%+v, seed %d", s, seed)
			}
		}
	})
	if seed < 1000 {
		t.Errorf("only %d tables", seed)
	}
}

// TestDynamicAnyTable: tables that nobody would choose are priorities, too.
func TestDynamicAnyTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table, err := Generate(drawSpec(rt))
		if err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "split") {
			splitBackwards(rt, table)
		}
		checkDynamic(t, table, rapid.Uint64().Draw(rt, "surroundings"))
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// TestDynamicIsTheTable: without jitter a table that leaves no gaps comes out as it went
// in, and one with pairs as single actions. 1F1B's later ranks hold less than its first,
// and may begin more forwards, which changes none of the times below.
func TestDynamicIsTheTable(t *testing.T) {
	for _, s := range []Spec{
		{Schedule: None, Ranks: 1, Chunks: 3, Microbatches: 4},
		{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8},
		{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8},
		{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 16},
	} {
		table := generate(t, s)
		out, tl, err := Machine{Costs: UnitCosts}.SimulateDynamic(priorities(t, table, slices.Max(peakInFlight(table))))
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != table.String() && s.Schedule != OneFOneB {
			t.Errorf("%+v: %s", s, firstDifference(table.String(), out.String()))
		}
		want := simulated(t, table, UnitCosts)
		if tl.Makespan != want.Makespan || tl.BubbleFraction != want.BubbleFraction || !slices.Equal(tl.Idle, want.Idle) {
			t.Errorf("%+v: makespan %v, bubble %v, idle %v; want %v, %v, %v", s,
				tl.Makespan, tl.BubbleFraction, tl.Idle, want.Makespan, want.BubbleFraction, want.Idle)
		}
	}
	table := generate(t, Spec{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 6})
	out, _, err := Machine{Costs: UnitCosts}.SimulateDynamic(priorities(t, table, slices.Max(peakInFlight(table))))
	if err != nil || strings.Contains(out.String(), "OVERLAP") || out.numActions() != table.numActions() {
		t.Errorf("%v\n%s", err, out)
	}
}

// chooserOf is the dispatcher of a rank of a table.
func chooserOf(t *testing.T, rank int, text string, bound int) *Dispatcher {
	t.Helper()
	return priorities(t, parseTable(t, text), bound).Dispatcher(rank)
}

func act(t *testing.T, text string) Action {
	t.Helper()
	c, err := parseCell(text)
	if err != nil {
		t.Fatal(err)
	}
	return c.actions[0]
}

func anything(Action) bool { return true }

// runs begins and ends what the dispatcher says until it says nothing.
func runs(t *testing.T, c *Dispatcher, want string) {
	t.Helper()
	var did []string
	for {
		a, ok := c.Next(anything)
		if !ok {
			break
		}
		c.Begin(a)
		c.End(a)
		did = append(did, a.String())
	}
	if got := strings.Join(did, " "); got != want {
		t.Errorf("runs %q, want %q", got, want)
	}
}

// TestChooserOvertakes: the row is the order, as far as inputs are there.
func TestChooserOvertakes(t *testing.T) {
	const table = "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\n1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2"
	c := chooserOf(t, 0, table, 2)
	runs(t, c, "0F0 0F1") // a third is beyond the bound
	c.Arrived(act(t, "0I0"))
	runs(t, c, "0I0 0W0 0F2")
	c.Arrived(act(t, "0I1"))
	c.Arrived(act(t, "0I2"))
	runs(t, c, "0I1 0W1 0I2 0W2")
	if a, left := c.First(); left {
		t.Errorf("%v is left", a)
	}

	c = chooserOf(t, 0, table, 3) // with room for a third
	runs(t, c, "0F0 0F1 0F2")

	c = chooserOf(t, 1, table, 2)
	c.Arrived(act(t, "1F0"))
	c.Arrived(act(t, "1F1"))
	runs(t, c, "1F0 1I0 1W0 1F1 1I1 1W1")
	if _, ok := c.Next(func(Action) bool { return false }); ok {
		t.Error("it begins what it can't")
	}
}

// TestChooserLeavesRoom: a forward of the first chunk doesn't take the room of the
// second's, which comes first in the row; the lowest microbatch's may always go.
func TestChooserLeavesRoom(t *testing.T) {
	// One rank holds both chunks, so that only Arrived delays 1F0.
	const table = "0F0 0F1 1F0 1F1 1B0 0B0 0F2 1F2 1B1 0B1 1B2 0B2"
	c := chooserOf(t, 0, table, 4)
	runs(t, c, "0F0 0F1") // 0F2 would take the room of 1F1
	c.Arrived(act(t, "1F0"))
	c.Arrived(act(t, "1F1"))
	runs(t, c, "1F0 1F1 1B0 0F2 1B1") // there is room when 1B0 has ended

	c = chooserOf(t, 0, table, 5)
	runs(t, c, "0F0 0F1 0F2")

	// With a bound below what the row holds, 1F0 takes the room of 0F2.
	c = chooserOf(t, 0, "0F0 0F1 0F2 1F0 1B0 0B0 1F1 1B1 0B1 1F2 1B2 0B2", 3)
	runs(t, c, "0F0 0F1") // with 0F2, microbatch 0 could not finish
	c.Arrived(act(t, "1F0"))
	runs(t, c, "1F0 1B0 0F2")
}

// TestChooserWaits: a rank doesn't begin what would be in the way of the row's next action.
func TestChooserWaits(t *testing.T) {
	c := chooserOf(t, 0, "0F0 0I0 0F1 0I1 0W0 0W1\n1F0 1I0 1W0 1F1 1I1 1W1", 2)
	c.ExpectInput(act(t, "0I0"))
	runs(t, c, "0F0")
	// What is no input of the rank's is nothing to it.
	for _, text := range []string{"0F0", "1I0", "0W0", "0F99", "7F0"} {
		c.ExpectInput(act(t, text))
		c.Arrived(act(t, text))
	}
	c.ExpectInput(act(t, "0I1"))
	runs(t, c, "")
	c.Arrived(act(t, "0I0"))
	c.ExpectInput(act(t, "0I0")) // late
	runs(t, c, "0I0 0F1")
	c.Arrived(act(t, "0I1"))
	runs(t, c, "0I1 0W0 0W1")
}

// TestDynamicMixedBackwards: where a chunk has B and split backwards, a B waits for the
// weight gradients before it.
func TestDynamicMixedBackwards(t *testing.T) {
	c := chooserOf(t, 0, "0F0 0I0 0W0 0F1 0B1 0F2 0I2 0W2", 1)
	runs(t, c, "0F0 0I0 0W0 0F1 0B1 0F2 0I2 0W2")
	c = chooserOf(t, 0, "0F0 0F1 0I0 0W0 0B1 0F2 0B2", 2)
	for _, want := range []string{"0F0", "0F1", "0I0"} {
		a, ok := c.Next(anything)
		if !ok || a.String() != want {
			t.Fatalf("next is %v (%v), want %s", a, ok, want)
		}
		c.Begin(a)
		c.End(a)
	}
	if a, ok := c.Next(func(a Action) bool { return a.Type == B }); ok {
		t.Errorf("%v comes before the weight gradient of microbatch 0", a)
	}
	runs(t, c, "0W0 0B1 0F2 0B2")
}

func TestBrokenRankings(t *testing.T) {
	good := generate(t, Spec{Schedule: ZBV, Ranks: 2, Chunks: 2, Microbatches: 4})
	swapped := func(a, b string) *Table {
		table := parseTable(t, good.String())
		row := table.Ranks[0]
		i, j := slices.Index(row, act(t, a)), slices.Index(row, act(t, b))
		row[i], row[j] = row[j], row[i]
		return table
	}
	for _, c := range []struct {
		name  string
		table *Table
		bound int
		want  error
		says  string
	}{
		{"below the chunks", good, 1, ErrSpec, "rank 0 holds 2 chunks, and may hold 1 output: raise the bound to at least 2"},
		{"no table", &Table{}, 4, ErrTable, "at least 1"},
		{"forwards descend", swapped("0F0", "0F1"), 4, ErrOrder, "ascending"},
		{"weight gradients descend", swapped("0W2", "0W3"), 4, ErrOrder, "0W3 on rank 0"},
	} {
		if _, err := NewPriorities(c.table, c.bound); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.says)
		}
	}
	if _, err := NewPriorities(generate(t, Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 4, ForwardOnly: true}), 0); err != nil {
		t.Errorf("a forward-only table: %v", err)
	}
}

func TestBrokenDynamicMachines(t *testing.T) {
	table := generate(t, Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 3})
	for _, c := range []struct {
		name    string
		machine Machine
		want    error
		says    string
	}{
		{"credits", Machine{Costs: UnitCosts, Credits: &Credits{}}, ErrCosts, "credits for 0 forward"},
		{"no credit", Machine{Costs: UnitCosts, Credits: &Credits{Forward: []int{0, 0}, Backward: []int{0, 1}}}, ErrDeadlock,
			"rank 0: 0F0 is next, and the forward edge of chunk 0 has 0 credits: give it at least 1"},
		{"costs", Machine{Costs: func(int, Action) float64 { return math.NaN() }}, ErrCosts, "0F0 on rank 0 costs NaN"},
		{"link", Machine{Costs: UnitCosts, Link: func(int, int) float64 { return -1 }}, ErrCosts, "from rank 0 to rank 1 takes -1"},
	} {
		if _, _, err := c.machine.SimulateDynamic(priorities(t, table, 2)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.says)
		}
	}
}

// TestChooserAllocatesNothing: not even in its first step.
func TestChooserAllocatesNothing(t *testing.T) {
	table := generate(t, Spec{Schedule: BreadthFirst, Ranks: 1, Chunks: 3, Microbatches: 16})
	r := priorities(t, table, 7)
	var fresh []*Dispatcher
	for range 11 { // and one to warm up
		fresh = append(fresh, r.Dispatcher(0))
	}
	i := 0
	n := testing.AllocsPerRun(10, func() {
		step(fresh[i])
		i++
	})
	if a, left := fresh[0].First(); n != 0 || left {
		t.Errorf("a step allocates %v times, %v is left (%v)", n, a, left)
	}
}

// step runs a dispatcher that holds all chunks.
func step(c *Dispatcher) {
	for {
		a, ok := c.Next(anything)
		if !ok {
			return
		}
		c.Begin(a)
		c.End(a)
		kind, ok := a.Type.edge()
		if !ok {
			continue
		}
		if to, ok := kind.to(int(a.Chunk), len(c.chunks)); ok {
			a.Chunk = int32(to)
			c.ExpectInput(a)
			c.Arrived(a)
		}
	}
}

// BenchmarkChooser decides for one rank with three chunks, per action.
func BenchmarkChooser(b *testing.B) {
	table, err := Generate(Spec{Schedule: BreadthFirst, Ranks: 1, Chunks: 3, Microbatches: 64})
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewPriorities(table, 16)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		step(r.Dispatcher(0))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(table.Ranks[0])), "ns/action")
}
