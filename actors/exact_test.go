package actors_test

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
)

// split replaces each B of a table by I, and by its W that many backwards later.
func split(t testing.TB, table *scheduler.Table, delay int) *scheduler.Table {
	t.Helper()
	out := *table
	out.Ranks = nil
	for _, row := range table.Ranks {
		var cells, late []scheduler.Action
		for _, a := range row {
			if a.Type != scheduler.B {
				cells = append(cells, a)
				continue
			}
			cells = append(cells, scheduler.Action{Chunk: a.Chunk, Type: scheduler.I, Microbatch: a.Microbatch})
			late = append(late, scheduler.Action{Chunk: a.Chunk, Type: scheduler.W, Microbatch: a.Microbatch})
			if len(late) > delay {
				cells, late = append(cells, late[0]), late[1:]
			}
		}
		out.Ranks = append(out.Ranks, append(cells, late...))
	}
	if r, err := scheduler.Check(&out); err != nil || r.OutOfOrder.Any() {
		t.Fatalf("the split table: %v, %+v", err, r)
	}
	return &out
}

// The same losses, norms, validation losses and weights to the last bit for
// every table, layout, recomputation and number of threads, through several
// orders with validation between them.
func TestSameBitsUnderEveryTable(t *testing.T) {
	const m = sequences / microbatchSize
	oneFOneB := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m})
	interleaved := func(group int) *scheduler.Table {
		return generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m, MicrobatchGroupSize: group})
	}
	some := func(_, microbatch int) bool { return microbatch%2 == 1 }
	all := func(int, int) bool { return true }
	evalLens := []int{10, 10, 10, 10, 7}
	for _, model := range families {
		none := training{model: model, threads: 1, steps: 4, evalLens: evalLens,
			table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
		want := none.run(t)
		for _, e := range want.steps()[1:] {
			if !(*e.GradNorm > clipNorm) || math.IsNaN(*e.Loss) || e.Skipped {
				t.Fatalf("%s: step %d has loss %g and norm %g: it must be clipped at %g", model.Family, e.Step, *e.Loss, *e.GradNorm, clipNorm)
			}
		}
		final := want.saves[len(want.saves)-1]
		for _, c := range []struct {
			name      string
			threads   int
			table     *scheduler.Table
			cuts      []int
			recompute func(rank, microbatch int) bool
		}{
			{"unpipelined, 2 threads, recomputing all", 2, none.table, nil, all},
			{"2 ranks 1f1b", 2, oneFOneB, []int{2}, nil},
			{"2 ranks 1f1b, 1 thread, recomputing some", 1, oneFOneB, []int{3}, some},
			{"4 ranks gpipe, 3 threads", 3, generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 4, Chunks: 1, Microbatches: m}),
				[]int{1, 2, 4}, nil},
			{"interleaved, group 2", 2, interleaved(2), []int{1, 2, 4}, nil},
			{"interleaved, group 4, empty chunks", 2, interleaved(4), []int{2, 2, 4}, some},
			{"3 uneven ranks", 2, generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{1, 4}, all},
			{"I and W apart", 2, split(t, oneFOneB, 0), []int{2}, nil},
			{"I and W apart, W late", 3, split(t, oneFOneB, 3), []int{2}, some},
			{"all W last, 1 thread", 1, split(t, interleaved(2), m*2), []int{1, 2, 3}, nil},
		} {
			tr := training{model: model, threads: c.threads, table: c.table, cuts: c.cuts, recompute: c.recompute, evalLens: evalLens, steps: 4}
			got := tr.run(t)
			if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
				t.Errorf("%s, %s: %x, unpipelined %x", model.Family, c.name, a, b)
			}
			sameState(t, model.Family+", "+c.name, final, got.saves[len(got.saves)-1])
		}
	}
}

// sameState compares weights and optimizer state to the bit.
func sameState(t *testing.T, name string, want, got save) {
	t.Helper()
	if len(want.saved) != len(got.saved) {
		t.Fatalf("%s: %d tensors saved, want %d", name, len(got.saved), len(want.saved))
	}
	for i, w := range want.saved {
		g := got.saved[i]
		same := w.Name == g.Name && slices.EqualFunc(w.Data, g.Data, func(a,
			b float32) bool {
			return math.Float32bits(a) == math.Float32bits(b)
		})
		if !same {
			t.Errorf("%s: %s differs from %s", name, g.Name, w.Name)
		}
	}
}

// A run that goes on from a checkpoint under another table ends with the bits of
// the undisturbed one.
func TestSameBitsAfterResuming(t *testing.T) {
	const m = sequences / microbatchSize
	whole := training{model: families[0], threads: 2, steps: 6, evalLens: []int{10, 4},
		table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
	want := whole.run(t)
	first := whole
	first.table, first.cuts = generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{1, 3}
	l := &log{}
	spec := first.spec(t, l)
	spec.CheckpointEvery, spec.Steps = 3, 3
	if out := wait(t, start(t, spec)); out.Err != nil {
		t.Fatal(out.Err)
	}
	second := whole
	second.table, second.cuts = generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m}), []int{1, 2, 4}
	second.from = &l.saves[len(l.saves)-1]
	if second.from.state.Step != 3 {
		t.Fatalf("the checkpoint is of step %d", second.from.state.Step)
	}
	got := second.run(t)
	if a, b := got.figures(), want.figures()[4:]; !slices.Equal(a, b) {
		t.Errorf("resumed: %x, undisturbed %x", a, b)
	}
	sameState(t, "resumed", want.saves[len(want.saves)-1], got.saves[len(got.saves)-1])
}

// Windows of different length in one microbatch give the loss that they give in
// microbatches of their own.
func TestValidationWindowsOfAnyLength(t *testing.T) {
	tr := training{model: families[1], threads: 1, evalLens: []int{10, 3, 10, 1, 6},
		table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 8})}
	apart := *tr.run(t).steps()[0].ValLoss
	tr.table = generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 4})
	l := &log{}
	spec := tr.spec(t, l)
	spec.MicrobatchSize = 2
	spec.EvalTable = evalTable(t, tr.table, 3)
	if out := wait(t, start(t, spec)); out.Err != nil {
		t.Fatal(out.Err)
	}
	if together := *l.steps()[0].ValLoss; math.Abs(together-apart) > 1e-6*apart || math.IsNaN(together) {
		t.Errorf("the loss is %g in microbatches of 2, %g in microbatches of 1", together, apart)
	}
}

// A Spec whose parts contradict each other is refused before anything starts.
func TestContradictions(t *testing.T) {
	good := training{model: families[0], threads: 1, evalLens: []int{10, 10, 10},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8}), cuts: []int{2}}
	for name, change := range map[string]func(*actors.Spec){
		"sequences": func(s *actors.Spec) { s.Sequences = 9 },
		"validation ranks": func(s *actors.Spec) {
			s.EvalTable = generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 3, ForwardOnly: true})
		},
		"validation stages": func(s *actors.Spec) {
			s.EvalTable = generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 3, ForwardOnly: true})
		},
		"windows":   func(s *actors.Spec) { s.EvalTable = evalTable(t, s.Table, 4) },
		"backwards": func(s *actors.Spec) { s.EvalTable = generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 3}) },
		"table": func(s *actors.Spec) {
			s.Table = &scheduler.Table{NumChunks: 2, Microbatches: 8, Ranks: [][]scheduler.Action{{}, {}}}
		},
		"validation table": func(s *actors.Spec) {
			s.EvalTable = &scheduler.Table{NumChunks: 2, Microbatches: 3, ForwardOnly: true, Ranks: [][]scheduler.Action{{}, {}}}
		},
	} {
		spec := good.spec(t, &log{})
		change(&spec)
		if run, err := actors.Start(spec); err == nil {
			run.Kill()
			t.Errorf("%s: the run starts (and ends with %v)", name, run.Wait().Err)
		}
	}
}
