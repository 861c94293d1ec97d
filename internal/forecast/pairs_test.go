package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// TestPairsInTurns: the time of a pair is that of both lists in turns: what one computes hides the exchanges of the other.
func TestPairsInTurns(t *testing.T) {
	begin := func(number int, ms float64) step {
		return step{ms: ms, dim: grid.Expert, begins: true, number: number}
	}
	one := func(number int) step { return step{awaits: true, number: number} }
	pass := func(ms, exchange float64) []step { // a part, an exchange, a part, another, and a part
		return []step{{share: ms}, begin(1, exchange), one(1), {share: ms}, begin(2, exchange), one(2), {share: ms}}
	}
	for _, c := range []struct {
		name     string
		lists    [][]step
		alone    float64 // both, one after the other
		together float64
	}{
		{"hidden", [][]step{pass(1, 1), pass(1, 1)}, 10, 6},
		{"half hidden", [][]step{pass(1, 2), pass(1, 2)}, 14, 10},
		{"the link is the limit", [][]step{pass(1, 3), pass(1, 3)}, 18, 14},
		{"one has no exchange", [][]step{pass(1, 1), timed(nil, 4)}, 9, 8},
		{"two exchanges at once", [][]step{{{share: 1}, begin(1, 1), begin(2, 1), one(1), one(2), {share: 1}},
			{{share: 3}, begin(1, 2), one(1), {share: 1}}}, 10, 7},
		{"a wait for all", [][]step{{{share: 1}, begin(1, 5), {awaits: true}, {share: 1}}, timed(nil, 4)}, 11, 11},
		{"an exchange within one rank", [][]step{{{share: 1}, one(7), {share: 1}}, timed(nil, 4)}, 6, 6},
	} {
		alone := 0.0
		for _, l := range c.lists {
			alone += play(l, 1).ms
		}
		steps, _ := inTurns(scheduler.Turns, c.lists...)
		together := play(steps, 1).ms
		if math.Abs(alone-c.alone) > 1e-9 || math.Abs(together-c.together) > 1e-9 {
			t.Errorf("%s: %v ms one after the other and %v together, want %v and %v", c.name, alone, together, c.alone, c.together)
		}
	}
	if got := timed([]step{{share: 0.25}, begin(1, 3), {share: 0.75}}, 8); got[0].share != 2 || got[1].ms != 3 || got[2].share != 6 {
		t.Errorf("shares in ms: %+v", got)
	}
}

// drawnPass is a list of a pass with some layers with experts: computing, what it sends, a wait for it, and the way back.
func drawnPass(t *rapid.T, layers int) (steps []step) {
	ms := func(name string) float64 { return float64(rapid.IntRange(1, 20).Draw(t, name)) / 4 }
	number := 0
	for k := range 2 * layers {
		steps = append(steps, step{share: ms("compute")})
		if rapid.IntRange(0, 3).Draw(t, "waits") == 0 { // as the exchange of the numbers of tokens
			steps = append(steps, step{ms: ms("shared"), dim: grid.Expert})
		}
		first := number + 1
		for range rapid.IntRange(1, 2).Draw(t, "exchanges") {
			number++
			steps = append(steps, step{ms: ms("exchange"), underWay: ms("latency"), carried: ms("carried"), dim: grid.Expert, begins: true,
				number: number, back: k%2 == 1}, step{share: ms("meanwhile")})
		}
		for n := first; n <= number; n++ {
			steps = append(steps, step{awaits: true, number: n})
		}
	}
	steps = append(steps, step{share: ms("compute")})
	if rapid.Bool().Draw(t, "sums") {
		steps = append(steps, step{ms: ms("sum"), dim: grid.Copies, begins: true, number: number + 1})
	}
	return steps
}

// TestPartsOfAPair: the simulation of a pair in parts takes what the pair takes, and each exchange is a dispatch or a combine.
func TestPartsOfAPair(t *testing.T) {
	whole := scheduler.TableOf("", [][]scheduler.Action{{{Type: scheduler.F}, {Type: scheduler.F, Microbatch: 1, Overlap: true},
		{Type: scheduler.B}, {Type: scheduler.B, Microbatch: 1}}})
	f, b := whole.Ranks[0][1], whole.Ranks[0][2]
	f.Overlap = false
	rapid.Check(t, func(t *rapid.T) {
		layers := [2]int{rapid.IntRange(0, 3).Draw(t, "forward"), rapid.IntRange(0, 3).Draw(t, "backward")}
		lists := [2][]step{drawnPass(t, layers[0]), drawnPass(t, layers[1])}
		steps, _ := inTurns(scheduler.Turns, lists[:]...)
		want := play(steps, 1).ms
		pair := playPair(scheduler.Turns, lists)
		if pair.ms != want {
			t.Fatalf("the pair takes %v ms, want %v", pair.ms, want)
		}
		single := func(_ int, a scheduler.Action) float64 {
			if a.Overlap = false; a == f || a == b {
				return want / 2
			}
			return 1
		}
		p := &Prediction{Order: whole, machine: scheduler.Machine{Costs: single}, carried: func(int, scheduler.Action) float64 { return 0 },
			paired: []pairedActions{{f: {want / 2, pair, 0}, b: {want / 2, pair, 1}}}}
		cut, tl, err := p.Parts()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scheduler.Check(cut); err != nil {
			t.Fatal(err)
		}
		if math.Abs(tl.Makespan-want-2) > 1e-9*want {
			t.Errorf("in parts the pair takes %v ms, want %v:\n%v\n%v", tl.Makespan-2, want, cut, tl)
		}
		exchanges := func(a scheduler.Action) []scheduler.Type {
			return scheduler.ExpertLayers(layers[min(1, int(a.Type-scheduler.F))])(a)
		}
		if err := scheduler.CheckExchanges(exchanges, cut); err != nil {
			t.Errorf("%v\n%v", err, cut)
		}
	})
}

// TestPartsOfAForecast: the table of a forecast in parts takes as long as the one with whole pairs, and shows what hides.
func TestPartsOfAForecast(t *testing.T) {
	sets := []string{"model.family=qwen3_moe", "model.kv_heads=2", "model.experts=4", "model.experts_per_token=2", "model.expert_ffn=16",
		"parallel.data=2", "parallel.expert=2", "pipeline.stages=2", "pipeline.schedule=dualpipev"}
	predicted := func(more ...string) *Prediction {
		p, err := Predict(resolved(t, append(more, sets...)...), unitCosts(4), Devices{Devices: 4, BytesPerS: 5e5})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := predicted("parallel.expert_overlap=true")
	cut, tl, err := p.Parts()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Check(cut); err != nil || !cut.HasParts() || p.Order.HasParts() {
		t.Fatalf("%v: the table in parts is\n%v", err, cut)
	}
	if d := tl.Makespan/p.MakespanMS - 1; math.Abs(d) > 1e-9 {
		t.Errorf("in parts the step takes %v ms, whole %v", tl.Makespan, p.MakespanMS)
	}
	ms := make(map[scheduler.Type]float64)
	for r, row := range cut.Ranks {
		for i, a := range row {
			ms[a.Type] += tl.End[r][i] - tl.Start[r][i]
		}
	}
	for _, typ := range []scheduler.Type{scheduler.FD, scheduler.FC, scheduler.BD, scheduler.BC} {
		if ms[typ] == 0 {
			t.Errorf("%v takes no time", typ)
		}
	}
	if alone := predicted(); alone.MakespanMS <= p.MakespanMS {
		t.Errorf("with overlap the step takes %v ms, without %v", p.MakespanMS, alone.MakespanMS)
	} else if same, _, err := alone.Parts(); err != nil || same != alone.Order {
		t.Errorf("without overlap there are parts: %v", err)
	}
}
