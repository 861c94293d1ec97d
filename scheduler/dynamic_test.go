package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func priorities(t *testing.T, table *Table, bound ...int) *Priorities {
	t.Helper()
	r, err := NewPriorities(table, bound, nil)
	if err != nil {
		t.Fatalf("%s\n%v", table, err)
	}
	return r
}

// surroundings are what a dynamic order is played in.
type surroundings struct {
	machine  Machine
	bound    []int
	announce bool
}

// draws returns the surroundings of a number. Bounds go from what lets one microbatch
// pass, below the table's peaks, to more than these; links from none to longer than an
// action.
func draws(t *testing.T, table *Table, seed uint64) surroundings {
	draw := func(n uint64) int {
		seed = mix(seed)
		return int(seed % n)
	}
	ranks := table.NumRanks()
	costs := Costs(UnitCosts)
	if draw(2) == 0 {
		costs = Slowed(costs, draw(uint64(ranks)), 1.5)
	}
	s := surroundings{
		machine:  Machine{Costs: Jittered(costs, float64(draw(4))/4, seed)},
		announce: draw(2) == 0,
	}
	if way := []float64{0, 0.1, 3}[draw(3)]; way > 0 {
		s.machine.Link = func(from, to int) float64 { return way * math.Abs(float64(from-to)) }
	}
	switch draw(3) {
	case 0:
		credits := check(t, table).Credits
		s.machine.Credits = &credits
	case 1:
		one := slices.Repeat([]int{1}, table.NumChunks)
		s.machine.Credits = &Credits{Forward: one, Backward: one}
	}
	chunks := make([]int, ranks)
	for chunk := range table.NumChunks {
		chunks[table.RankOf(chunk)]++
	}
	switch peaks := peakInFlight(table); draw(4) {
	case 0:
		s.bound = peaks
	case 1:
		s.bound = chunks
	case 2:
		s.bound = slices.Repeat([]int{slices.Max(peaks)}, ranks)
	default:
		for r, peak := range peaks {
			s.bound = append(s.bound, max(chunks[r], peak-3+draw(8)))
		}
	}
	return s
}

// checkDynamic plays a table and says whether what comes out is what it should be.
func checkDynamic(t *testing.T, table *Table, s surroundings) {
	t.Helper()
	out, tl, err := s.machine.playDynamic(priorities(t, table, s.bound...), s.announce)
	if err != nil {
		t.Fatalf("bound %v\n%s\n%v", s.bound, table, err)
	}
	report := check(t, out)
	if report.OutOfOrder {
		t.Errorf("bound %v: weight gradients out of order\n%s", s.bound, out)
	}
	for r, peak := range report.PeakInFlight {
		if peak > s.bound[r] && !table.ForwardOnly {
			t.Errorf("rank %d holds %d, the bound is %d\n%s", r, peak, s.bound[r], out)
		}
	}
	type lane struct {
		chunk int32
		typ   Type
	}
	for r, row := range out.Ranks {
		next := map[lane]int32{}
		for _, a := range row {
			l := lane{a.Chunk, a.Type}
			if a.Type == B {
				l.typ = I
			}
			if a.Microbatch < next[l] {
				t.Errorf("rank %d: %v after a later microbatch\n%s", r, a, out)
			}
			next[l] = a.Microbatch
		}
	}
	if n := out.numActions(); n != table.numActions() {
		t.Errorf("%d actions came out of %d", n, table.numActions())
	}
	// The times are those of the order: nothing began before it could, and what a rank
	// stayed idle for can only have made it later.
	again, err := s.machine.Simulate(out)
	if s.machine.Credits != nil && errors.Is(err, ErrDeadlock) {
		t.Errorf("what came out deadlocks within the credits that it came out with: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	for r, row := range out.Ranks {
		for i, a := range row {
			if tl.Start[r][i] < again.Start[r][i]-1e-9 {
				t.Fatalf("%v begins at %v, and can't before %v", a, tl.Start[r][i], again.Start[r][i])
			}
			if took := tl.End[r][i] - tl.Start[r][i]; math.Abs(took-s.machine.Costs(r, a)) > 1e-9 {
				t.Fatalf("%v takes %v, want %v", a, took, s.machine.Costs(r, a))
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
			checkDynamic(t, table, draws(t, table, seed))
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
		checkDynamic(t, table, draws(t, table, rapid.Uint64().Draw(rt, "surroundings")))
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// TestDynamicIsTheTable: without jitter a table that leaves no gaps comes out as it went
// in, and one with pairs as single actions.
func TestDynamicIsTheTable(t *testing.T) {
	for _, s := range []Spec{
		{Schedule: None, Ranks: 1, Chunks: 3, Microbatches: 4},
		{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8},
		{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8},
		{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 16},
	} {
		table := generate(t, s)
		out, tl, err := Machine{Costs: UnitCosts}.SimulateDynamic(priorities(t, table, peakInFlight(table)...))
		if err != nil {
			t.Fatal(err)
		}
		if out.String() != table.String() {
			t.Errorf("%+v: %s", s, firstDifference(table.String(), out.String()))
		}
		want := simulated(t, table, UnitCosts)
		if tl.Makespan != want.Makespan || tl.BubbleFraction != want.BubbleFraction || !slices.Equal(tl.Idle, want.Idle) {
			t.Errorf("%+v: makespan %v, bubble %v, idle %v; want %v, %v, %v", s,
				tl.Makespan, tl.BubbleFraction, tl.Idle, want.Makespan, want.BubbleFraction, want.Idle)
		}
	}
	table := generate(t, Spec{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 6})
	out, _, err := Machine{Costs: UnitCosts}.SimulateDynamic(priorities(t, table, peakInFlight(table)...))
	if err != nil || strings.Contains(out.String(), "OVERLAP") || out.numActions() != table.numActions() {
		t.Errorf("%v\n%s", err, out)
	}
}

// chooserOf is the dispatcher of a rank of a table.
func chooserOf(t *testing.T, rank int, text string, bound ...int) *Dispatcher {
	t.Helper()
	return priorities(t, parseTable(t, text), bound...).Dispatcher(rank)
}

func act(t *testing.T, text string) Action {
	t.Helper()
	c, err := parseCell(text)
	if err != nil {
		t.Fatal(err)
	}
	return c.actions[0]
}

// runs begins and ends what the dispatcher says until it says nothing.
func runs(t *testing.T, c *Dispatcher, now float64, want string) {
	t.Helper()
	var did []string
	for {
		a, ok := c.Next(now, nil)
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
	c := chooserOf(t, 0, table, 2, 1)
	runs(t, c, 0, "0F0 0F1") // a third is beyond the bound
	c.Arrived(act(t, "0I0"))
	runs(t, c, 0, "0I0 0W0 0F2")
	c.Arrived(act(t, "0I1"))
	c.Arrived(act(t, "0I2"))
	runs(t, c, 0, "0I1 0W1 0I2 0W2")
	if !c.Done() {
		t.Error("it is not done")
	}
	c.Reset()
	runs(t, c, 0, "0F0 0F1")

	c = chooserOf(t, 0, table, 3, 1) // with room for a third
	runs(t, c, 0, "0F0 0F1 0F2")

	c = chooserOf(t, 1, table, 2, 2)
	c.Arrived(act(t, "1F0"))
	c.Arrived(act(t, "1F1"))
	runs(t, c, 0, "1F0 1I0 1W0 1F1 1I1 1W1")
	if _, ok := c.Next(0, func(Action) bool { return false }); ok {
		t.Error("it begins what it can't")
	}
}

// TestChooserLeavesRoom: a forward of the first chunk doesn't take the room of the
// second's, which comes first in the row; the lowest microbatch's may always go.
func TestChooserLeavesRoom(t *testing.T) {
	// One rank holds both chunks, so that only Arrived delays 1F0.
	const table = "0F0 0F1 1F0 1F1 1B0 0B0 0F2 1F2 1B1 0B1 1B2 0B2"
	c := chooserOf(t, 0, table, 4)
	runs(t, c, 0, "0F0 0F1") // 0F2 would take the room of 1F1
	c.Arrived(act(t, "1F0"))
	c.Arrived(act(t, "1F1"))
	runs(t, c, 0, "1F0 1F1 1B0 0F2 1B1") // there is room when 1B0 has ended

	c = chooserOf(t, 0, table, 5)
	runs(t, c, 0, "0F0 0F1 0F2")

	// With a bound below what the row holds, 1F0 takes the room of 0F2.
	c = chooserOf(t, 0, "0F0 0F1 0F2 1F0 1B0 0B0 1F1 1B1 0B1 1F2 1B2 0B2", 3)
	runs(t, c, 0, "0F0 0F1") // with 0F2, microbatch 0 could not finish
	c.Arrived(act(t, "1F0"))
	runs(t, c, 0, "1F0 1B0 0F2")
}

// TestChooserWaits: a rank doesn't begin what is likely to be in the way of the row's
// next action.
func TestChooserWaits(t *testing.T) {
	const table = "0F0 0I0 0F1 0I1 0W0 0W1\n1F0 1I0 1W0 1F1 1I1 1W1"
	c := chooserOf(t, 0, table, 2, 2)
	a := act(t, "0F0")
	c.Begin(a)
	c.End(a)
	for _, x := range []struct {
		due  float64
		want string
	}{
		{10.74, ""},    // before three quarters of 0F1's time have passed
		{9, ""},        // it is late
		{10.76, "0F1"}, // there is time
		{math.Inf(1), "0F1"},
		{math.NaN(), "0F1"},
	} {
		c.ExpectInput(act(t, "0I0"), x.due)
		a, ok := c.Next(10, nil)
		if got := a.String(); ok && got != x.want || !ok && x.want != "" {
			t.Errorf("due %v: %v (%v), want %q", x.due, a, ok, x.want)
		}
	}
	c.Expect(func(int, Action) float64 { return 2 }) // so that there is none
	c.ExpectInput(act(t, "0I0"), 10.76)
	runs(t, c, 10, "")
	c.ExpectInput(act(t, "0I0"), 10.5)
	c.Arrived(act(t, "0I0"))
	runs(t, c, 10, "0I0 0F1 0W0")
	// What is no input of the rank's is nothing to it.
	for _, text := range []string{"0F0", "1I0", "0W0", "0F99", "7F0"} {
		c.ExpectInput(act(t, text), 0)
		c.Arrived(act(t, text))
	}
	runs(t, c, 10, "")
}

// TestDynamicMixedBackwards: where a chunk has B and split backwards, a B waits for the
// weight gradients before it.
func TestDynamicMixedBackwards(t *testing.T) {
	c := chooserOf(t, 0, "0F0 0I0 0W0 0F1 0B1 0F2 0I2 0W2", 1)
	runs(t, c, 0, "0F0 0I0 0W0 0F1 0B1 0F2 0I2 0W2")
	c = chooserOf(t, 0, "0F0 0F1 0I0 0W0 0B1 0F2 0B2", 2)
	for _, want := range []string{"0F0", "0F1", "0I0"} {
		a, ok := c.Next(0, nil)
		if !ok || a.String() != want {
			t.Fatalf("next is %v (%v), want %s", a, ok, want)
		}
		c.Begin(a)
		c.End(a)
	}
	if a, ok := c.Next(0, func(a Action) bool { return a.Type == B }); ok {
		t.Errorf("%v comes before the weight gradient of microbatch 0", a)
	}
	runs(t, c, 0, "0W0 0B1 0F2 0B2")
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
		bound []int
		want  error
		says  string
	}{
		{"no bounds", good, nil, ErrSpec, "0 bounds for 2 ranks"},
		{"below the chunks", good, []int{4, 1}, ErrSpec, "rank 1 holds 2 chunks, and may hold 1 outputs: raise its bound to at least 2"},
		{"no table", &Table{}, nil, ErrTable, "at least 1"},
		{"forwards descend", swapped("0F0", "0F1"), []int{4, 4}, ErrOrder, "ascending"},
		{"weight gradients descend", swapped("0W2", "0W3"), []int{4, 4}, ErrOrder, "0W3 on rank 0"},
	} {
		if _, err := NewPriorities(c.table, c.bound, nil); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.says)
		}
	}
	if _, err := NewPriorities(generate(t, Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 4, ForwardOnly: true}), []int{0, 0}, nil); err != nil {
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
		{"cores", Machine{Costs: UnitCosts, Share: SharedCores(1)}, ErrCosts, "leave Share out"},
		{"credits", Machine{Costs: UnitCosts, Credits: &Credits{}}, ErrCosts, "credits for 0 forward"},
		{"no credit", Machine{Costs: UnitCosts, Credits: &Credits{Forward: []int{0, 0}, Backward: []int{0, 1}}}, ErrDeadlock,
			"rank 0: 0F0 is next, and the forward edge of chunk 0 has 0 credits: give it at least 1"},
		{"costs", Machine{Costs: func(int, Action) float64 { return math.NaN() }}, ErrCosts, "0F0 on rank 0 costs NaN"},
		{"link", Machine{Costs: UnitCosts, Link: func(int, int) float64 { return -1 }}, ErrCosts, "from rank 0 to rank 1 takes -1"},
	} {
		if _, _, err := c.machine.SimulateDynamic(priorities(t, table, 2, 2)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.says)
		}
	}
}

// TestChooserAllocatesNothing: not even in its first step.
func TestChooserAllocatesNothing(t *testing.T) {
	table := generate(t, Spec{Schedule: BreadthFirst, Ranks: 1, Chunks: 3, Microbatches: 16})
	c := priorities(t, table, 7).Dispatcher(0)
	can := func(Action) bool { return true }
	n := testing.AllocsPerRun(10, func() { step(c, can) })
	if n != 0 || !c.Done() {
		t.Errorf("a step allocates %v times", n)
	}
}

// step runs a dispatcher that holds all chunks.
func step(c *Dispatcher, can func(Action) bool) {
	c.Reset()
	for {
		a, ok := c.Next(0, can)
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
			c.ExpectInput(a, 0)
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
	r, err := NewPriorities(table, []int{16}, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := r.Dispatcher(0)
	for b.Loop() {
		step(c, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(table.Ranks[0])), "ns/action")
}
