package actors_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// weights is memory for all weights of a model.
type weights map[int][]float32

func room(t *testing.T, c stages.Config) weights {
	t.Helper()
	m, err := stages.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	w := make(weights)
	for _, p := range m.Params {
		w[p.Index] = make([]float32, p.Len())
	}
	return w
}

func (w weights) of(param int) []float32 { return w[param] }

// Copies that are taken while a run trains are those of one step, on all stages, and change
// none of its figures.
func TestCopyWeights(t *testing.T) {
	const steps = 20
	one := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8})
	for name, c := range map[string]struct {
		table *scheduler.Table
		cuts  []int
		set   func(*actors.Spec)
	}{
		"1f1b": {one, []int{2}, func(*actors.Spec) {}},
		"interleaved": {generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 8}), []int{1, 2, 3},
			func(s *actors.Spec) { s.EvalEvery = 1 }},
		"zero-bubble": {generate(t, scheduler.Spec{Schedule: scheduler.ZBH1, Ranks: 2, Chunks: 1, Microbatches: 8}), []int{2},
			func(*actors.Spec) {}},
		"post-validation": {one, []int{2}, func(s *actors.Spec) { s.PostValidate, s.EvalEvery, s.ClipNorm = true, 0, 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			tr := training{model: families[0], threads: 2, steps: steps, cuts: c.cuts, evalLens: []int{4, 3}, table: c.table}
			want := &log{}
			spec := tr.spec(t, want)
			c.set(&spec)
			spec.PostValidate, spec.CheckpointEvery = false, 1
			if out := wait(t, start(t, spec)); out.Err != nil {
				t.Fatal(out.Err)
			}

			got := &log{}
			spec = tr.spec(t, got)
			c.set(&spec)
			run := start(t, spec)
			var all sync.WaitGroup
			for range 3 {
				all.Add(1)
				go func() {
					defer all.Done()
					last := int64(-1)
					for {
						w := room(t, tr.model)
						step, err := run.CopyWeights(w.of)
						if errors.Is(err, actors.ErrEnded) {
							return
						}
						if err != nil || step < last {
							t.Errorf("a copy of step %d after one of step %d: %v", step, last, err)
							return
						}
						last = step
						if step == 0 {
							continue // the checkpoints begin with step 1
						}
						i := slices.IndexFunc(want.saves, func(s save) bool { return s.state.Step == step })
						for _, s := range want.saves[i].saved {
							if s.Part == "" && !slices.Equal(s.Data, w[s.Index]) {
								t.Errorf("%s of the copy of step %d is not what that step made", s.Name, step)
								return
							}
						}
					}
				}()
			}
			if out := wait(t, run); out.Err != nil {
				t.Error(out.Err)
			}
			all.Wait()
			if !slices.Equal(got.figures(), want.figures()) {
				t.Error("the figures differ from those of a run of which nothing was copied")
			}
		})
	}
}

// A run that rests is copied too, and one that is killed answers.
func TestCopyWeightsOfAPausedRun(t *testing.T) {
	tr := training{model: families[1], threads: 1, steps: 1000, cuts: []int{2},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8})}
	l := &log{}
	run := start(t, tr.spec(t, l))
	run.Pause()
	eventually(t, run, "a pause", func() bool { return len(eventsOf[event.PauseEvent](l)) > 0 })
	at := eventsOf[event.PauseEvent](l)[0].Step
	for range 3 {
		w := room(t, tr.model)
		if step, err := run.CopyWeights(w.of); err != nil || step != at {
			t.Errorf("a copy of step %d, %v; it has paused at %d", step, err, at)
		}
	}
	run.Kill()
	wait(t, run)
	if _, err := run.CopyWeights(room(t, tr.model).of); !errors.Is(err, actors.ErrEnded) {
		t.Errorf("a run that has ended: %v", err)
	}
}
