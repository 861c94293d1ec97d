package actors_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestShadowsInOtherProcesses: a run whose ranks have shadows in other processes has the bits of one without.
func TestShadowsInOtherProcesses(t *testing.T) {
	const m = sequences / microbatchSize
	for _, c := range []struct {
		name         string
		table        *scheduler.Table
		cuts         []int
		hosts        []string
		shadows      []int
		postValidate bool
	}{
		{"2 ranks", generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}), []int{2}, []string{"a", "b"}, []int{1, 0}, false},
		{"ahead", generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}), []int{2}, []string{"a", "b"}, []int{1, 0}, true},
		{"two in a process", generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{2, 3}, []string{"a", "b", "b"},
			[]int{1, 0, 0}, false},
		{"some", generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: m}), []int{2, 3}, []string{"a", "b", "c"},
			[]int{-1, 2, -1}, false},
	} {
		for _, model := range families {
			t.Run(c.name+", "+model.Family, func(t *testing.T) {
				tr := training{model: model, threads: 2, steps: 4, evalLens: []int{10, 7}, table: c.table, cuts: c.cuts}
				train := func(shadows []int) *log {
					l := &log{}
					run, end := tr.startOver(t, l, c.hosts, func(_ string, s *actors.Spec) {
						s.Shadows, s.PostValidate, s.ClipNorm = shadows, c.postValidate, 1e9
					})
					out := wait(t, run)
					end()
					if out.Err != nil {
						t.Fatal(out.Err)
					}
					return l
				}
				want, got := train(nil), train(c.shadows)
				if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
					t.Errorf("figures %x, without shadows %x", a, b)
				}
				sameState(t, "the end", want.saves[len(want.saves)-1], got.saves[len(got.saves)-1])
			})
		}
	}
}

// TestShadowPlaces: shadows that would be lost with their ranks, or leave the edge, are refused.
func TestShadowPlaces(t *testing.T) {
	tr := training{model: families[0], threads: 1, steps: 1, cuts: []int{2, 3},
		table: generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: sequences / microbatchSize})}
	for _, c := range []struct {
		name  string
		hosts []string
		at    []int
		edge  bool
		want  error
	}{
		{"too few", []string{"a", "b", "c"}, []int{1, 2}, false, actors.ErrSpec},
		{"with itself", []string{"a", "b", "c"}, []int{0, -1, -1}, false, actors.ErrSpec},
		{"no rank", []string{"a", "b", "c"}, []int{3, -1, -1}, false, actors.ErrSpec},
		{"below", []string{"a", "b", "c"}, []int{-2, -1, -1}, false, actors.ErrSpec},
		{"in its process", []string{"a", "a", "c"}, []int{1, -1, -1}, false, actors.ErrSpec},
		{"off the edge", []string{"a", "b", "c"}, []int{1, 2, 0}, true, actors.ErrEdge},
	} {
		spec := tr.spec(t, &log{})
		spec.Hosts, spec.Shadows, spec.Edge = c.hosts, c.at, c.edge
		if _, err := actors.Start(spec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestShadowWaits: a step is not decided before its gradients are at the shadows, and the status says that this is what the run waits for.
func TestShadowWaits(t *testing.T) {
	tr := training{model: small(families[0]), threads: 1, steps: 3, cuts: []int{2},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: sequences / microbatchSize})}
	let := make(chan struct{})
	tr.sending = func(m any) {
		if g, ok := m.(*actors.StepGradient); ok && g.Step == 2 && g.Rank == 0 {
			<-let
		}
	}
	l := &log{}
	run, end := tr.startOver(t, l, []string{"a", "b"}, func(_ string, s *actors.Spec) { s.Shadows = []int{1, 0} })
	eventually(t, run, "the wait", func() bool {
		s := run.Status().Actors[0]
		return s.Step == 2 && s.Wait == event.WaitShadow && s.From == "stage 1" &&
			strings.Contains(s.Describe(), "gradients of the step at the shadows")
	})
	if n := len(eventsOf[event.StepEvent](l)); n > 2 { // of steps 0 and 1
		t.Errorf("%d steps are decided without the shadow's gradients", n)
	}
	close(let)
	out := wait(t, run)
	end()
	if out.Err != nil || out.State.Step != 3 {
		t.Fatal(out.State.Step, out.Err)
	}
}
