package scheduler

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestAnyMeasured: of any table with any costs, links, skips and credits, the critical path is as long as the makespan, its
// waits are messages of the link's time, and the gaps of all ranks are the bubble, none of them without a cause.
func TestAnyMeasured(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawSkipTable(rt)
		m := Machine{Costs: Jittered(UnitCosts, rapid.Float64Range(0, 0.9).Draw(rt, "jitter"), rapid.Uint64().Draw(rt, "seed"))}
		if rapid.Bool().Draw(rt, "zero costs") {
			m.Costs = drawCosts(rt)
		}
		if way := rapid.Float64Range(0, 5).Draw(rt, "way"); rapid.Bool().Draw(rt, "link") {
			m.Link = func(from, to int) float64 { return way * float64((to-from)*(to-from)) }
		}
		if rapid.Bool().Draw(rt, "credits") {
			report, err := Check(table)
			if err != nil {
				rt.Fatal(err)
			}
			m.Credits = &report.Credits
		}
		tl, err := m.Simulate(table)
		if err != nil {
			rt.Fatal(err)
		}
		measured := StepOf(table, tl)
		measured.Credits = m.Credits
		path, err := measured.Critical()
		if err != nil {
			rt.Fatalf("%s\n%v", table, err)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, tl.Makespan) }
		if !near(path.TotalMS(), tl.Makespan) {
			rt.Fatalf("%s\nthe path %+v is %v long, the makespan %v", table, path.Steps, path.TotalMS(), tl.Makespan)
		}
		checkPath(rt, table, path, m, near)
		step := tl.Makespan + rapid.Float64Range(0, 3).Draw(rt, "end")
		measured.StepMS = step
		gaps, err := measured.Idle()
		if err != nil {
			rt.Fatal(err)
		}
		idle, busy := 0.0, 0.0
		for r, row := range gaps {
			busy += tl.Busy[r]
			for i, g := range row {
				idle += g.Len()
				checkGap(rt, tl, table, g, near)
				if i > 0 && g.Start < row[i-1].End {
					rt.Fatalf("gaps %+v and %+v of rank %d", row[i-1], g, r)
				}
			}
		}
		if all := step * float64(table.NumRanks()); !near(idle+busy, all) {
			rt.Fatalf("%s\ngaps of %v and actions of %v are not %v", table, idle, busy, all)
		}
	})
}

func checkPath(rt *rapid.T, table *Table, path *Path, m Machine, near func(a, b float64) bool) {
	for i, s := range path.Steps {
		if table.Ranks[s.Rank][s.Position] != s.Action || s.End < s.Start || (s.Why == FirstOfAll) != (i == 0) {
			rt.Fatalf("step %d of the path: %+v", i, s)
		}
		if i == 0 {
			continue
		}
		before := path.Steps[i-1]
		if !near(before.End+s.Wait, s.Start) {
			rt.Fatalf("%+v does not follow %+v", s, before)
		}
		switch link := 0.0; {
		case m.Credits != nil: // what was over at the same time may count instead
		case s.Why == Message && before.Rank != s.Rank && m.Link != nil:
			link = m.Link(before.Rank, s.Rank)
			fallthrough
		default:
			// Of two messages that seem to come at the same time, one may have been there before.
			if !near(s.Wait, link) && !(s.Why == Message && s.Wait > link) {
				rt.Fatalf("%s\n%+v waits behind %+v; a message takes %v", table, s, before, link)
			}
		}
	}
}

func checkGap(rt *rapid.T, tl *Timeline, table *Table, g Gap, near func(a, b float64) bool) {
	switch g.Cause {
	case Starved, Between:
		rt.Fatalf("%s\n%+v, and everything is known", table, g)
	case CoolDown:
		if !near(g.End, tl.Makespan) {
			rt.Fatalf("%+v, and the last action ends at %v", g, tl.Makespan)
		}
	case Optimizer:
		if !near(g.Start, tl.Makespan) {
			rt.Fatalf("%+v, and the last action ends at %v", g, tl.Makespan)
		}
	default:
		for i, a := range table.Ranks[g.From] {
			if a != g.Needs {
				continue
			}
			if at := tl.Start[g.From][i]; g.Cause == Credit && !near(at, g.End) {
				rt.Fatalf("%+v: the credit comes back at %v", g, at)
			}
			if at := tl.End[g.From][i]; g.Cause != Credit && !near(max(at, g.Start)+g.MessageMS, g.End) {
				rt.Fatalf("%+v: the input is made at %v", g, at)
			}
			return
		}
		rt.Fatalf("%s\n%+v waits for what is not there", table, g)
	}
}

// TestMeasuredSoFar: of a step under way the path leads to its latest action, and ranks whose actions have
// not ended have no cause for that.
func TestMeasuredSoFar(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawSkipTable(rt)
		tl, err := Simulate(table, UnitCosts)
		if err != nil {
			rt.Fatal(err)
		}
		now := rapid.Float64Range(0, tl.Makespan).Draw(rt, "now")
		step, last := StepOf(table, tl), 0.0
		for r, row := range step.MS {
			n := 0
			for n < len(row) && row[n][1] <= now {
				last = max(last, row[n][1])
				n++
			}
			step.MS[r] = row[:n]
		}
		path, err := step.Critical()
		if err != nil || math.Abs(path.TotalMS()-last) > 1e-9 {
			rt.Fatalf("%v: %v, %v", last, path, err)
		}
		if _, err := step.Idle(); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestMeasuredWrong: times that no step has are errors, and those of wrong clocks are not.
func TestMeasuredWrong(t *testing.T) {
	table := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 1})
	ok := [][][2]float64{{{0, 1}, {4, 5}}, {{1, 2}, {2, 4}}}
	wrong := func(chunks int, a Action) Step {
		ranks := make([][]Action, chunks)
		ranks[0] = []Action{a}
		s := Step{Table: &Table{NumChunks: chunks, Microbatches: 1, Ranks: ranks}, MS: make([][][2]float64, chunks)}
		s.MS[0] = [][2]float64{{0, 1}}
		return s
	}
	huge := Step{Table: &Table{NumChunks: 1 << 20, Microbatches: 1 << 20, Ranks: make([][]Action, 1)}, MS: make([][][2]float64, 1)}
	for name, c := range map[string]struct {
		step Step
		want error
	}{
		"none of a rank":      {Step{Table: table, MS: ok[:1]}, ErrTimes},
		"too many":            {Step{Table: table, MS: [][][2]float64{{{0, 1}, {1, 2}, {2, 3}}, nil}}, ErrTimes},
		"an end before":       {Step{Table: table, MS: [][][2]float64{{{1, 0}}, nil}}, ErrTimes},
		"no number":           {Step{Table: table, MS: [][][2]float64{{{0, math.NaN()}}, nil}}, ErrTimes},
		"no number, infinite": {Step{Table: table, MS: [][][2]float64{{{0, math.Inf(1)}}, nil}}, ErrTimes},
		"no end":              {Step{Table: table, MS: ok, StepMS: math.NaN()}, ErrTimes},
		"credits of another":  {Step{Table: table, MS: ok, Credits: &Credits{}}, ErrCosts},
		"an empty table":      {Step{Table: &Table{}}, ErrTable},
		"a huge table":        {huge, ErrTable},
		"an unknown chunk":    {wrong(2, Action{Chunk: 7, Type: F}), ErrTable},
		"another's chunk":     {wrong(2, Action{Chunk: 1, Type: F}), ErrTable},
		"no action":           {wrong(1, Action{}), ErrTable},
		"half a pair":         {wrong(1, Action{Type: F, Overlap: true}), ErrTable},
	} {
		if _, err := c.step.Critical(); !errors.Is(err, c.want) {
			t.Errorf("%s: the path's error is %v", name, err)
		}
		if _, err := c.step.Idle(); !errors.Is(err, c.want) {
			t.Errorf("%s: the gaps' error is %v", name, err)
		}
		if err := c.step.Check(); !errors.Is(err, c.want) && name != "credits of another" && name != "another's chunk" {
			t.Errorf("%s: the step's error is %v", name, err)
		}
	}
	for name, s := range map[string]Step{
		"an action without a time": {Table: table, MS: [][][2]float64{{{0, 1}}, {{1, 2}, {2, 4}}}},
		"clocks of one rank":       {Table: table, MS: ok, Clocks: make([]Clock, 1)},
	} {
		if err := s.Check(); !errors.Is(err, ErrTimes) {
			t.Errorf("%s: %v", name, err)
		}
	}
	skewed := Step{Table: table, MS: [][][2]float64{{{0, 1}, {3.5, 5}}, {{0.5, 2}, {2, 4}}}} // rank 1's clock is behind
	path, err := skewed.Critical()
	if err != nil || path.MessageMS != 0 || len(path.Steps) != 4 {
		t.Errorf("with a wrong clock: %+v, %v", path, err)
	}
	gaps, err := skewed.Idle()
	if err != nil || len(gaps[0]) != 1 || gaps[0][0].Cause != Waits {
		t.Errorf("with a wrong clock: %+v, %v", gaps, err)
	}
}

// TestStarved: a forward that reads data and has all else waits for the data, others for nothing
// that is known.
func TestStarved(t *testing.T) {
	table := generate(t, Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 2})
	times := [][][2]float64{{{1, 2}, {5, 6}, {9, 10}, {14, 15}}, {{2, 3}, {6, 7}, {8, 9}, {9, 10}}}
	gaps, err := (&Step{Table: table, MS: times}).Idle()
	if err != nil {
		t.Fatal(err)
	}
	var got []Cause
	for _, row := range gaps {
		for _, g := range row {
			got = append(got, g.Cause)
		}
	}
	want := []Cause{Starved, Starved, Waits, Between, WarmUp, Waits, Between, CoolDown}
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("gap %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// TestStepPlayed: a step of mean times is its own plan, a pair's time is shared, and a recorded order gives the table back.
func TestStepPlayed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawSkipTable(rt)
		tl, err := Simulate(table, UnitCosts)
		if err != nil {
			rt.Fatal(err)
		}
		step := StepOf(table, tl)
		if err := step.Check(); err != nil {
			rt.Fatal(err)
		}
		plan, err := step.Plan()
		if err != nil || math.Abs(plan.Makespan-tl.Makespan) > 1e-9*tl.Makespan {
			rt.Fatalf("%s\nthe plan takes %+v, the step %v (%v)", table, plan, tl.Makespan, err)
		}
		again := step.Timeline()
		for r, row := range table.Ranks {
			busy := 0.0
			for i := range row {
				busy += step.Took(r, i)
			}
			if math.Abs(busy-tl.Busy[r]) > 1e-9 || math.Abs(again.Busy[r]-tl.Busy[r]) > 1e-9 {
				rt.Fatalf("%s\nactions of rank %d took %v, and %v, of %v", table, r, busy, again.Busy[r], tl.Busy[r])
			}
		}
		if math.Abs(again.BubbleFraction-tl.BubbleFraction) > 1e-9 || again.Makespan != tl.Makespan {
			rt.Fatalf("%s\n%+v is not %+v", table, again, tl)
		}
		made := TableOf(table.Schedule, table.Ranks)
		for c := range table.NumChunks {
			if made.RankOf(c) != table.RankOf(c) {
				rt.Fatalf("%s\nchunk %d is on rank %d, not %d", table, c, made.RankOf(c), table.RankOf(c))
			}
		}
		if made.NumChunks != table.NumChunks || made.Microbatches != table.Microbatches || made.ForwardOnly != table.ForwardOnly {
			rt.Fatalf("%s\nbecomes %+v", table, made)
		}
	})
}
