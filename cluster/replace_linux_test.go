package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// replacement is a run whose workers die at random moments.
type replacement struct {
	name   string
	sets   []string
	ranks  []int // whose workers die, in order; nil: three times one that has ranks
	source string
}

// TestReplace: workers die at random moments, and free workers compute their ranks. The run repeats no decided step: no restart, no line
// twice, and the bits of an undisturbed run of the same grid.
func TestReplace(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(6)...)
	for _, c := range []replacement{
		{"pp2 dp2", []string{"parallel.data=2", "pipeline.stages=2", "run.eval_every=8", "optimizer.ema=0.9"}, nil, troupe.FromReplica},
		{"pp4, shadows", []string{"pipeline.stages=4", "run.eval_every=8", "optimizer.ema=0.9", `cluster.shadow="on"`}, []int{1, 3, 0, 2},
			troupe.FromShadow},
		{"pp2, shadows, ahead", []string{"pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true",
			`cluster.shadow="on"`}, []int{0, 1}, troupe.FromShadow},
		{"tp2 dp2", []string{"parallel.tensor=2", "parallel.data=2"}, nil, troupe.FromReplica},
		{"dp4, ahead", []string{"parallel.data=4", "pipeline.schedule=zb-h2", "pipeline.post_validation=true"}, nil, troupe.FromReplica},
		{"cp2 pp2", []string{"parallel.context=2", "pipeline.stages=2"}, nil, troupe.FromReplica},
		{"tp2 pp2, shadows", []string{"parallel.tensor=2", "pipeline.stages=2", `cluster.shadow="on"`}, []int{2, 1}, troupe.FromShadow},
		{"ep2 dp4", slices.Concat(experts, []string{"parallel.data=4", "parallel.expert=2", "optimizer.ema=0.9"}), []int{1, 2},
			troupe.FromReplica},
		{"ep2, shadows", slices.Concat(experts, []string{"parallel.data=2", "parallel.expert=2", "model.family=gpt_oss",
			`cluster.shadow="on"`}), []int{1, 0}, troupe.FromShadow},
		{"tp2 dp2 ep2, whole experts", slices.Concat(experts, []string{"parallel.tensor=2", "parallel.data=2", "parallel.expert=2",
			"parallel.expert_tensor=1"}), []int{1, 2}, troupe.FromReplica},
		{"tp2 ep2, whole experts, shadows", slices.Concat(experts, []string{"parallel.tensor=2", "parallel.expert=2",
			"parallel.expert_tensor=1", `cluster.shadow="on"`}), []int{1, 0}, troupe.FromShadow},
		{"pp2 dp2, loads of experts", slices.Concat(experts, globalBalance, []string{"parallel.data=2", "pipeline.stages=2"}), nil,
			troupe.FromReplica},
		{"frozen, shadows", []string{"pipeline.stages=3", `model.freeze=["embed", "1-2"]`, `cluster.shadow="on"`}, []int{0, 1},
			troupe.FromShadow},
		{"frozen replicas", []string{"parallel.data=2", "pipeline.stages=2", `model.freeze=["1-2"]`}, nil, troupe.FromReplica},
		{"two ranks a worker, shadows", []string{"pipeline.stages=6", "model.layers=6", "pipeline.chunks=1", `cluster.shadow="on"`,
			"model.tie_embeddings=true"}, []int{5, 0}, troupe.FromShadow},
	} {
		if c.name != "pp2 dp2" && c.name != "pp4, shadows" && c.name != "ep2 dp4" && !long {
			continue
		}
		t.Run(c.name, func(t *testing.T) { replaces(t, g, c) })
	}
}

func replaces(t *testing.T, g *group, c replacement) {
	const steps = 60
	sets := append([]string{fmt.Sprint("run.steps=", steps), "run.checkpoint_every=40", "run.eval_every=0", "run.keep=1",
		"cluster.max_restarts=0"}, c.sets...)
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	begin := g.line.place()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 6, Seconds: patience.Seconds()})
	at := func(step int) int {
		t.Helper()
		e := g.await(t, fmt.Sprintf("step %d", step), begin, patience, func(e event) bool {
			return e.Kind == "step" && e.Step >= step || ended(e)
		})
		if ended(e) {
			t.Fatalf("the run ended: %s\n%s", e.Error, g.describe())
		}
		return g.line.place()
	}
	if c.ranks == nil {
		c.ranks = []int{-1, -1, -1}
	}
	for i, rank := range c.ranks {
		place := at(5 + 12*i)
		lost := withRanks(t, g, rank)
		killed := time.Now()
		if err := g.workers[lost].kill(); err != nil {
			t.Fatal(err)
		}
		e := g.await(t, "a replacement", place, patience, func(e event) bool {
			return e.Kind == "replace" || e.Kind == "restart" || ended(e)
		})
		if e.Kind != "replace" || !strings.Contains(e.Text, "worker "+lost) {
			t.Fatalf("after the loss of %s: %v %v\n%s", lost, e, e.Attrs, g.describe())
		}
		if e.Attrs["source"] != c.source || e.Attrs["bytes"] == "0" || e.Attrs["kept"] != "0" {
			t.Errorf("the state of %s came %v, want it from its %s, and nothing for the others", lost, e.Attrs, c.source)
		}
		next := g.await(t, "the next step", place, patience, func(next event) bool {
			return next.Kind == "step" && next.Step > e.Step && next.At.After(e.At) || ended(next)
		})
		t.Logf("%s: event %.3f s after the kill, next step %.3f s; since it was noticed %v", lost, e.At.Sub(killed).Seconds(),
			next.At.Sub(killed).Seconds(), e.Attrs)
		g.join(t, lost)
	}
	if end := g.await(t, "the run to end", begin, 3*patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, out, steps)
	marks, kinds := marksOf(t, out)
	if kinds[telemetry.MarkReplace] != len(c.ranks) || kinds[telemetry.MarkRestart]+kinds[telemetry.MarkResume] > 0 {
		t.Errorf("the marks are %v", marks)
	}
}

// TestRescue: if no other worker may compute the ranks of one that dies, the run writes a checkpoint of its last step from the shadow or a
// replica, and continues from it when the worker is back. If another one dies meanwhile, the checkpoint is written from what is left. No
// step is repeated.
func TestRescue(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		second  string // the worker that dies while the checkpoint is written; "": none
		sets    []string
	}{
		{"shadows", 3, "", []string{"pipeline.stages=3", `cluster.shadow="on"`}},
		{"frozen, shadows", 3, "", []string{"pipeline.stages=3", `cluster.shadow="on"`, `model.freeze=["embed", "1-2"]`}},
		{"replicas", 4, "", []string{"parallel.data=2", "pipeline.stages=2"}},
		{"shadows, twice", 4, "worker-3", []string{"pipeline.stages=4", `cluster.shadow="on"`}},
		{"replicas, twice", 6, "worker-4", []string{"parallel.data=3", "pipeline.stages=2"}},
	} {
		if c.name != "shadows" && !long && os.Getenv("TROUPE_FAULTS") == "" { // TestRescue of internal/plan in one process
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			names := workers(c.workers)
			dies := pointFault{At: "in SaveState", Rank: slices.Index(names, c.second), Step: 15, Done: filepath.Join(t.TempDir(), "died")}
			g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}, adjust: func(s *settings) {
				if c.second != "" {
					s.Faults = []pointFault{dies}
				}
			}})
			g.join(t, names...)
			sets := append([]string{"run.steps=40", "run.checkpoint_every=0", "run.eval_every=0",
				`cluster.place=["` + strings.Join(names, `", "`) + `"]`}, c.sets...)
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: c.workers, Seconds: patience.Seconds()})
			g.await(t, "step 15", 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 15 })
			place := g.line.place()
			if err := g.workers["worker-1"].kill(); err != nil {
				t.Fatal(err)
			}
			e := g.await(t, "the checkpoint", place, patience, func(e event) bool {
				return e.Kind == "regroup" || e.Kind == "restart" || e.Kind == "replace" || ended(e)
			})
			if e.Kind != "regroup" || !strings.Contains(e.Attrs["lost"], "worker-1") || !strings.Contains(e.Attrs["lost"], c.second) ||
				e.Step < 15 {
				t.Fatalf("%v %v\n%s", e, e.Attrs, g.describe())
			}
			back := []string{"worker-1"}
			if c.second != "" {
				back = append(back, c.second)
			}
			g.join(t, back...)
			if end := g.await(t, "the run to end", place, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			sameRun(t, want, out, 40)
			events, _ := g.line.from(0)
			last := 0
			for _, e := range events {
				if e.Kind == "step" && e.Step != last+1 && e.Step > 0 {
					t.Errorf("step %d follows step %d", e.Step, last)
				}
				if e.Kind == "step" {
					last = e.Step
				}
			}
		})
	}
}

// TestShareOut: without a free worker, the others take the ranks of one that dies: in a pipeline of shadows down to a single worker, and
// among replicas as long as one is left.
func TestShareOut(t *testing.T) {
	for _, c := range []struct {
		name, source string
		workers      int
		sets         []string
		lost         []int // ranks whose workers die, one after the other
	}{
		{"shadows", troupe.FromShadow, 3, []string{"pipeline.stages=3", `cluster.shadow="on"`}, []int{1, 0}},
		{"replicas", troupe.FromReplica, 4, []string{"parallel.data=2", "pipeline.stages=2"}, []int{1, 0}},
	} {
		if c.name == "replicas" && !long && os.Getenv("TROUPE_FAULTS") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
			g.join(t, workers(c.workers)...)
			sets := append([]string{"run.steps=60", "run.checkpoint_every=0", "run.eval_every=0", "cluster.max_restarts=0",
				"cluster.rebalance=false"}, c.sets...)
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
			g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: c.workers, Seconds: patience.Seconds()})
			for i, rank := range c.lost {
				g.await(t, "a step", 0, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 10+20*i })
				place := g.line.place()
				if err := g.workers[withRanks(t, g, rank)].kill(); err != nil {
					t.Fatal(err)
				}
				e := g.await(t, "a replacement", place, patience, func(e event) bool {
					return e.Kind == "regroup" || e.Kind == "restart" || e.Kind == "replace" || ended(e)
				})
				if e.Kind != "replace" || e.Attrs["source"] != c.source {
					t.Fatalf("%v %v\n%s", e, e.Attrs, g.describe())
				}
			}
			if end := g.await(t, "the run to end", 0, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			sameRun(t, want, out, 60)
		})
	}
}

// killAtOnce kills the workers of some ranks. They are frozen together first, so that they are lost together.
func (g *group) killAtOnce(t *testing.T, ranks []int) {
	t.Helper()
	var all []*process
	for _, rank := range ranks {
		name := withRanks(t, g, rank)
		g.mu.Lock()
		all = append(all, g.workers[name])
		g.mu.Unlock()
	}
	for _, p := range all {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// withRanks returns the worker that computes a rank; −1: one that computes ranks, the last in the status.
func withRanks(t *testing.T, g *group, rank int) (name string) {
	t.Helper()
	for line := range strings.Lines(g.ask(t, command{Do: "status"}).Text) {
		of, rest, ok := strings.Cut(strings.TrimPrefix(line, "worker "), " at ")
		_, ranks, _ := strings.Cut(rest, "ranks [")
		ranks, _, _ = strings.Cut(ranks, "]")
		has := slices.Contains(strings.Fields(ranks), fmt.Sprint(rank)) || rank < 0 && ranks != ""
		if !ok || !strings.HasPrefix(line, "worker ") || !has {
			continue
		}
		if rank >= 0 && name != "" {
			t.Errorf("rank %d is listed with workers %s and %s\n%s", rank, name, of, g.describe())
		}
		name = of
	}
	if name == "" {
		t.Fatalf("no worker has rank %d\n%s", rank, g.describe())
	}
	return name
}

// TestReplaceKeepsPause: a paused run whose worker dies stays paused, at the same step, and takes a checkpoint of it on request.
func TestReplaceKeepsPause(t *testing.T) {
	g := newGroup(t, &group{boss: settings{Silence: 2 * time.Second}})
	g.join(t, workers(5)...)
	sets := []string{"run.steps=20", "run.checkpoint_every=0", "run.eval_every=0", "parallel.data=2", "pipeline.stages=2",
		"cluster.max_restarts=0"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	begin := g.line.place()
	pause := troupe.Change{Kind: troupe.ChangePause, Step: 7}
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 5, Seconds: patience.Seconds(),
		Requests: []troupe.Change{pause}})
	if e := g.await(t, "the pause", begin, patience, kindOf("pause")); e.Step != 7 {
		t.Fatalf("the run pauses at step %d", e.Step)
	}
	place := g.line.place()
	if err := g.workers[withRanks(t, g, -1)].kill(); err != nil {
		t.Fatal(err)
	}
	if e := g.await(t, "a replacement", place, patience, func(e event) bool { return e.Kind == "replace" || ended(e) }); e.Step != 7 {
		t.Fatalf("%v\n%s", e, g.describe())
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeCheckpoint}})
	if e := g.await(t, "a checkpoint", place, patience, kindOf("checkpoint")); e.Step != 7 {
		t.Errorf("the checkpoint is of step %d", e.Step)
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeResume}})
	if end := g.await(t, "the run to end", place, patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	sameRun(t, want, out, 20)
}

// marksOf reads the marks of a run, and counts them by kind.
func marksOf(t *testing.T, out string) (marks []telemetry.Mark, kinds map[string]int) {
	t.Helper()
	marks, err := telemetry.ReadMarks(filepath.Join(out, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	kinds = make(map[string]int)
	for _, m := range marks {
		kinds[m.Kind]++
	}
	return marks, kinds
}
