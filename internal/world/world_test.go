package world

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

var update = flag.Bool("update", false, "write testdata")

// pair is two pipelines of two stages, each rank of which sums with its like in the other after the last action.
func pair(change func(w *World)) *World {
	g, err := grid.New(grid.Sizes{Pipeline: 2, Data: 2})
	if err != nil {
		panic(err)
	}
	t, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 3})
	if err != nil {
		panic(err)
	}
	o := &Orders{Grid: g, Tables: []*scheduler.Table{t, t}, Pending: 2}
	for _, ranks := range g.Groups(grid.Data) {
		o.Groups = append(o.Groups, Group{g.Name(ranks[0], grid.Data), ranks})
	}
	o.Lists = func(rank int, t *scheduler.Table) (l Lists, err error) {
		group := int32(g.Coordinates(rank)[grid.Pipeline])
		row := t.Ranks[group]
		l.Actions = make([][]Op, len(row))
		l.Actions[len(row)-1] = []Op{{Group: group, What: "all_reduce sum float32[8]", Of: "layer 1", Later: true},
			{Group: group, What: "all_reduce sum float32[4]", Of: "layer 0", Later: true}}
		l.Tied.With = []int{rank ^ 1}
		l.Norms = []Op{{Group: group, What: "all_reduce sum float32[4]", Of: "the others"}}
		return l, nil
	}
	w, err := o.World()
	if err != nil {
		panic(err)
	}
	for r := range w.Ranks {
		for s := range w.Ranks[r].Steps {
			w.Ranks[r].Steps[s].Ops = append([]Op(nil), w.Ranks[r].Steps[s].Ops...)
		}
	}
	change(w)
	return w
}

// faults are worlds with a mistake.
var faults = []struct {
	name   string
	change func(w *World)
	kind   error
}{
	{"all is well", func(*World) {}, nil},
	{"sums in another order", func(w *World) {
		ops := w.Ranks[2].Steps[5].Ops
		ops[0], ops[1] = ops[1], ops[0]
	}, ErrMismatch},
	{"the sums in the middle are missing", func(w *World) { w.Ranks[3].Steps[5].Ops = nil }, ErrDeadlock},
	{"the last sum is missing", func(w *World) { w.Ranks[3].Steps[7].Ops = nil }, ErrDeadlock},
	{"a rank ends early", func(w *World) { w.Ranks[3].Steps = w.Ranks[3].Steps[:7] }, ErrWorld},
	{"a rank does not report", func(w *World) { w.Ranks[3].Steps = w.Ranks[3].Steps[:8] }, ErrMissing},
	{"other numbers", func(w *World) { w.Ranks[2].Steps[7].Ops[0].Of = "layer 5" }, ErrMixed},
	{"no credits", func(w *World) { w.Edges[0].Credits = 0 }, ErrDeadlock},
	{"one replica waits before it sends what the other waits behind", func(w *World) {
		// Rank 0 meets rank 2 before its first forward, which rank 1 waits for; rank 3 meets rank 1 first of all, and rank 2
		// needs rank 3's first backward before it meets rank 0.
		barrier := []Op{{Group: 0, What: "barrier"}}
		w.Ranks[0].Steps[0].Ops, w.Ranks[2].Steps[5].Ops = barrier, append(barrier, w.Ranks[2].Steps[5].Ops...)
		barrier = []Op{{Group: 1, What: "barrier"}}
		w.Ranks[1].Steps[0].Ops, w.Ranks[3].Steps[0].Ops = barrier, barrier
	}, ErrDeadlock},
	{"a message that nobody sends", func(w *World) { w.Ranks[0].Steps[1].Sends = nil }, ErrWorld},
	{"a group that is not the rank's", func(w *World) { w.Ranks[0].Steps[7].Ops[0].Group = 1 }, ErrWorld},
	{"no such group", func(w *World) { w.Ranks[0].Steps[7].Ops[0].Group = 9 }, ErrWorld},
	{"no such edge", func(w *World) { w.Ranks[0].Steps[0].Sends[0].Edge = -1 }, ErrWorld},
	{"an edge to nowhere", func(w *World) { w.Edges[1].To = 7 }, ErrWorld},
	{"a member twice", func(w *World) { w.Groups[1].Members = []int{1, 1} }, ErrWorld},
	{"too many at once", func(w *World) {
		w.Ranks[0].Steps[5].Ops = append(w.Ranks[0].Steps[5].Ops, w.Ranks[0].Steps[5].Ops[0])
	}, ErrPending},
}

// TestFaults: each mistake is told as testdata/faults.txt has it.
func TestFaults(t *testing.T) {
	var text strings.Builder
	for _, c := range faults {
		report, err := Check(pair(c.change))
		if !errors.Is(err, c.kind) || (err == nil) != (c.kind == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.kind)
		}
		fmt.Fprintf(&text, "# %s\n", c.name)
		if err != nil {
			fmt.Fprintf(&text, "%v\n\n", err)
		} else {
			fmt.Fprintf(&text, "%d steps, %d collectives, %d messages, %d at once\n\n", report.Steps, report.Collectives, report.Messages,
				report.Later)
		}
	}
	path := filepath.Join("testdata", "faults.txt")
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the faults are told otherwise; with -update they are written:\n%s", text.String())
	}
}

// TestCheckAnything: what is no world is refused, and nothing panics or goes on for ever.
func TestCheckAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.IntRange(-1, 4)
		message := rapid.Custom(func(t *rapid.T) Message {
			return Message{int32(number.Draw(t, "edge")), int32(number.Draw(t, "number"))}
		})
		op := rapid.Custom(func(t *rapid.T) Op {
			return Op{Group: int32(number.Draw(t, "group")) - 1, What: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "what"),
				Later: rapid.Bool().Draw(t, "later"), OfStep: rapid.Bool().Draw(t, "of step")}
		})
		step := rapid.Custom(func(t *rapid.T) Step {
			return Step{Name: "step", Takes: rapid.SliceOfN(message, 0, 2).Draw(t, "takes"), Sends: rapid.SliceOfN(message, 0, 2).Draw(t, "sends"),
				Ops: rapid.SliceOfN(op, 0, 3).Draw(t, "ops")}
		})
		w := &World{Pending: number.Draw(t, "pending")}
		for range rapid.IntRange(0, 3).Draw(t, "ranks") {
			w.Ranks = append(w.Ranks, Rank{Steps: rapid.SliceOfN(step, 0, 3).Draw(t, "steps")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "edges") {
			w.Edges = append(w.Edges, Edge{From: number.Draw(t, "from"), To: number.Draw(t, "to"), Credits: number.Draw(t, "credits")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			w.Groups = append(w.Groups, Group{Members: rapid.SliceOfN(number, 0, 3).Draw(t, "members")})
		}
		report, err := Check(w)
		var f *Fault
		if (err == nil) != (report != nil) || err != nil && (!errors.As(err, &f) || f.Kind == nil || f.Text == "") {
			t.Fatalf("%+v, %v", report, err)
		}
	})
}

// TestTooLarge: a grid that can't be proved is refused before memory is taken.
func TestTooLarge(t *testing.T) {
	g, err := grid.New(grid.Sizes{Data: 64, Tensor: []int{64}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1000})
	if err != nil {
		t.Fatal(err)
	}
	o := &Orders{Grid: g}
	for range 64 {
		o.Tables = append(o.Tables, table)
	}
	if _, err := o.World(); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "have 8192000 actions") {
		t.Errorf("error %v", err)
	}
}
