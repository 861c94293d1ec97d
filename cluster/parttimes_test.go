package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestTimesOfParts: in the traces of workers that share experts, the passes of a pair are in parts, in the order in which they ran: the
// usual one, or that of the user's own table, which changes no bit.
func TestTimesOfParts(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, workers(2)...)
	dir := t.TempDir()
	sets := slices.Concat(families["llama, untied"], experts, []string{"model.layers=2", "parallel.data=2", "parallel.expert=2",
		"parallel.expert_overlap=true", "run.trace_every=2"})
	usual, own := filepath.Join(dir, "usual"), filepath.Join(dir, "own")
	g.train(t, command{Config: smallRun, Sets: keys(t, usual, sets), Workers: 2})
	inParts(t, usual, scheduler.Turns(5, 5))

	const parts = "(0F1.1;0FD1.1;0F1.2;0FC1.2;0B0.1;0BD0.1;0B0.2;0BC0.2;0F1.3;0FD1.3;0B0.3;0BD0.3;" +
		"0F1.4;0FC1.4;0B0.4;0BC0.4;0B0.5;0F1.5)OVERLAP_F_B"
	const table = "0F0," + parts + ",(0F2;0B1)OVERLAP_F_B,(0F3;0B2)OVERLAP_F_B,0B3\n"
	path := filepath.Join(dir, "own.csv")
	if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
	g.train(t, command{Config: smallRun, Sets: keys(t, own, sets, []string{"pipeline.schedule=" + path}), Workers: 2})
	inParts(t, own, []int{0, 0, 1, 1, 0, 1, 0, 1, 1, 0})
	sameRun(t, usual, own, 6)
}

// inParts checks the traces of a run with two layers with experts: of the first pair, the parts have an order.
func inParts(t *testing.T, out string, order []int) {
	t.Helper()
	path := filepath.Join(out, "trace.jsonl")
	_, steps, err := telemetry.ReadTrace(path, -1)
	if err != nil || len(steps) != 3 {
		t.Fatalf("traces of the steps %v: %v", steps, err)
	}
	for _, step := range steps {
		trace, _, err := telemetry.ReadTrace(path, step)
		if err != nil {
			t.Fatal(err)
		}
		s, err := trace.Measured(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := scheduler.CheckExchanges(scheduler.ExpertLayers(2), s.Table); err != nil {
			t.Error(err)
		}
		whole, err := s.Table.Whole()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := whole.String(), "0F0 (0F1;0B0)OVERLAP_F_B (0F2;0B1)OVERLAP_F_B (0F3;0B2)OVERLAP_F_B 0B3"; got != want {
			t.Errorf("step %d: %s, want %s", step, got, want)
		}
		if got := whole.OwnTurns(0, 1); !slices.Equal(got, order) {
			t.Errorf("step %d: the parts ran in the order %v, want %v", step, got, order)
		}
		for position, want := range map[int][]int{0: scheduler.Turns(5), 3: scheduler.Turns(5, 5), 7: scheduler.Turns(5)} {
			if got := whole.OwnTurns(0, position); len(got) != len(want) || position == 3 && !slices.Equal(got, want) {
				t.Errorf("step %d: the parts at %d ran in the order %v, want %v", step, position, got, want)
			}
		}
		timesInOrder(t, s)
		_, measured, err := draw.FromStep(s)
		if err != nil {
			t.Fatal(err)
		}
		if f := measured.Figures(); !(f.Exchange > 0) || f.Hidden < 0 || f.Hidden > f.Exchange {
			t.Errorf("step %d: tokens traveled for %v ms, %v of them hidden", step, f.Exchange, f.Hidden)
		}
	}
}

// timesInOrder checks that no two parts of a rank run at the same time, and that an exchange begins after its part has begun and
// ends before the next part of its action begins. One that came before another that was sent earlier has no length.
func timesInOrder(t *testing.T, s *scheduler.Step) {
	t.Helper()
	const rounding = 1e-6
	for r, row := range s.Table.Ranks {
		free := 0.0
		for i, a := range row {
			at := s.MS[r][i]
			if !a.Type.IsExchange() {
				if at[0] < free-rounding {
					t.Errorf("step %d: %v begins at %v ms, while the action before runs until %v", s.Number, a, at[0], free)
				}
				free = at[1]
				continue
			}
			if part := s.MS[r][i-1]; at[0] < part[0]-rounding {
				t.Errorf("step %d: %v begins at %v ms, before its part at %v", s.Number, a, at[0], part[0])
			}
			next := i + 1
			for row[next].Type.IsExchange() || row[next].Type.IsForward() != a.Type.IsForward() || row[next].Part != a.Part+1 {
				next++
			}
			if came := s.MS[r][next][0]; at[1] > came+rounding && at[1] > at[0] {
				t.Errorf("step %d: %v ends at %v ms, and %v begins at %v", s.Number, a, at[1], row[next], came)
			}
		}
	}
}
