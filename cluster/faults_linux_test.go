package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry"
	tells "github.com/troupe-ml/troupe/telemetry/event"
)

func init() { tapFaults = faultsOf }

// pointOf names the point to which a message has brought a process: "in" or "out" and its type; validation is the order of one, assign an
// assignment of ranks.
func pointOf(out bool, message any) string {
	name := fmt.Sprintf("%T", message)
	name = name[strings.LastIndexByte(name, '.')+1:]
	switch m := message.(type) {
	case *actors.Order:
		if m.Phase == tells.Eval {
			name = "validation"
		}
	case *wire.Control:
		if m.GetAssign() != nil {
			name = "assign"
		}
	}
	if out {
		return "out " + name
	}
	return "in " + name
}

// faultsOf makes the process of a rank die at points.
func faultsOf(all []pointFault) func(out bool, target string, message any) {
	var mu sync.Mutex
	rank, step, counts := -1, int64(0), make([]int, len(all))
	return func(out bool, _ string, message any) {
		mu.Lock()
		defer mu.Unlock()
		if c, ok := message.(*wire.Control); ok && len(c.GetAssign().GetRanks()) > 0 {
			rank = int(c.GetAssign().GetRanks()[0])
		}
		if v := reflect.Indirect(reflect.ValueOf(message)); v.Kind() == reflect.Struct && v.FieldByName("Header").IsValid() {
			step = v.FieldByName("Header").Interface().(actors.Header).Step
		}
		point := pointOf(out, message)
		for i, f := range all {
			if f.At != point || f.Rank != rank || step < f.Step || exists(f.Done) || f.After != "" && !exists(f.After) {
				continue
			}
			if counts[i]++; counts[i] < f.Count {
				continue
			}
			done, err := os.OpenFile(f.Done, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				continue // another process was first
			}
			_, _ = fmt.Fprint(done, os.Getpid())
			_ = done.Close()
			if f.Forget { // it has kept nothing of such an attempt
				message.(*wire.Control).GetAssign().GetRenewal().Attempt[0] ^= 1
				continue
			}
			if f.Stop {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				continue
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// faulty is a run whose workers die at points.
type faulty struct {
	name     string
	sets     []string
	workers  int
	faults   []pointFault
	restarts int  // that may be needed
	short    bool // make test has it
}

const (
	faultSteps   = 50
	faultSilence = 2 * time.Second
)

// The layouts of the matrix.
var (
	fourShadows = []string{"pipeline.stages=4", `cluster.shadow="on"`, "model.tie_embeddings=true"}
	twoAhead    = []string{"pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true", `cluster.shadow="on"`,
		"model.tie_embeddings=true"}
	replicas     = []string{"parallel.data=2", "pipeline.stages=2", "model.tie_embeddings=true"}
	expertGroups = []string{"model.family=mixtral", "model.experts=4", "model.ffn=24", "parallel.data=4", "parallel.expert=2"}
	tensorGroups = []string{"parallel.tensor=2", "parallel.data=2"}
	contexts     = []string{"parallel.context=2", "pipeline.stages=2"}
	interleaved  = []string{"pipeline.stages=3", "pipeline.chunks=2", `cluster.shadow="on"`, "device.dtype=bfloat16"}
)

// Points of a step, and those only of ranks with shadows or of a tied weight.
var (
	stepPoints = []string{"in Order", "in Transfer", "out Transfer", "out Credit", "out StageDone", "in Apply", "out Applied", "in SaveState",
		"out StageState", "in validation"}
	shadowPoints = []string{"out StepGradient", "in StepGradient", "out Shadowed"}
	tiedPoints   = []string{"out TiedGradient", "in TiedGradient"}
)

// matrix lists the runs. In each, faults follow each other, so that the run has recovered before the next.
func matrix() (all []faulty) {
	add := func(name string, sets []string, ranks int, points []string, of func(i int) int, stop bool) {
		const each = 3
		for first := 0; first < len(points); first += each {
			c := faulty{name: fmt.Sprintf("%s, %s", name, strings.Join(points[first:min(first+each, len(points))], ", ")), sets: sets,
				workers: ranks + 3}
			for i, p := range points[first:min(first+each, len(points))] {
				c.faults = append(c.faults, pointFault{At: p, Rank: of(first + i), Step: int64(4 + 13*i), Stop: stop})
			}
			all = append(all, c)
		}
	}
	last := func(n int) func(int) int { return func(i int) int { return (n - 1) * (i % 2) } } // the first and the last in turn
	middle := func(i int) int { return 1 + i%2 }
	add("shadows", fourShadows, 4, slices.Concat(stepPoints, shadowPoints), middle, false)
	add("shadows, ends", fourShadows, 4, slices.Concat(tiedPoints, stepPoints, shadowPoints), last(4), false)
	add("ahead", twoAhead, 2, slices.Concat(tiedPoints, stepPoints, shadowPoints), last(2), false)
	add("replicas", replicas, 4, slices.Concat(tiedPoints, stepPoints), func(i int) int { return i % 4 }, false)
	add("tensor groups", tensorGroups, 4, []string{"in Order", "out StageDone", "in Apply", "out Applied", "in SaveState", "in validation"},
		func(i int) int { return i % 4 }, false)
	add("expert groups", expertGroups, 4, []string{"in Order", "out StageDone", "in Apply", "out Applied", "in SaveState", "in validation"},
		func(i int) int { return i % 4 }, false)
	add("contexts", contexts, 4, []string{"in Order", "in Transfer", "out StageDone", "in Apply", "out Applied", "in validation"},
		func(i int) int { return i % 4 }, false)
	add("interleaved, bfloat16", interleaved, 3, slices.Concat(stepPoints[:7], shadowPoints), func(i int) int { return i % 3 }, false)
	add("stops", fourShadows, 4, []string{"in Transfer", "out StageDone", "out StepGradient", "in Apply", "out Applied", "out Shadowed"},
		func(i int) int { return i % 4 }, true)
	add("stops of replicas", replicas, 4, []string{"out TiedGradient", "out StageDone", "in Apply"}, func(i int) int { return i % 4 }, true)
	// A second rank dies while the first is replaced, or the one in its place does.
	const first = 1
	for _, l := range []struct {
		name          string
		sets          []string
		holder, other int // the rank with the first's state, and one that has nothing of it
	}{{"shadows", fourShadows, 2, 3}, {"replicas", replicas, 3, 2}} {
		for _, second := range []pointFault{{At: "in halt", Rank: l.other}, {At: "out halted", Rank: l.other}, {At: "in leave", Rank: l.other},
			{At: "out left", Rank: l.other}, {At: "in assign", Rank: l.other}, {At: "in Peers", Rank: l.other},
			{At: "out StageReady", Rank: l.other}, {At: "in RankState", Rank: first}, {At: "out StageReady", Rank: first},
			{At: "in ReadState", Rank: l.holder}, {At: "in halt", Rank: l.holder},
			{At: "in assign", Rank: l.other, Forget: true}, {At: "in assign", Rank: l.holder, Forget: true}} {
			c := faulty{name: fmt.Sprintf("%s, twice, %s of %d", l.name, second.At, second.Rank), sets: l.sets, workers: 7,
				short: l.name == "shadows" && (second.At == "in Peers" || second.At == "in RankState" || second.Forget)}
			if second.Forget {
				c.name += ", which forgets"
			}
			if second.Rank == l.holder {
				c.restarts = 1
			}
			second.Step = 5
			c.faults = []pointFault{{At: "in Apply", Rank: first, Step: 5}, second}
			all = append(all, c)
		}
	}
	return all
}

// TestFaults kills or stops workers at points of a step and of a renewal, or makes them lose what they have kept. Each run ends with the
// bits of an undisturbed one, and makes no decided step again, unless a rank and its holder die. The workers that stay read nothing again;
// those that were stopped are spares when they wake. make check-faults has the whole matrix; make test a few runs of it.
func TestFaults(t *testing.T) {
	wants, faults := make(map[string]string), 0
	dir := t.TempDir()
	for _, c := range matrix() {
		if os.Getenv("TROUPE_FAULTS") == "" && !c.short {
			continue
		}
		faults += len(c.faults)
		key := strings.Join(c.sets, " ")
		if wants[key] == "" {
			wants[key] = filepath.Join(dir, fmt.Sprint("want", len(wants)))
			trainHere(t, command{Config: smallRun, Sets: keys(t, wants[key], c.common())})
		}
		t.Run(c.name, func(t *testing.T) { c.train(t, wants[key]) })
	}
	t.Logf("%d faults", faults)
}

func (c *faulty) common() []string {
	return append([]string{fmt.Sprint("run.steps=", faultSteps), "run.checkpoint_every=6", "run.eval_every=9", "run.keep=1",
		"cluster.max_restarts=5", "cluster.rebalance=false"}, c.sets...)
}

func (c *faulty) train(t *testing.T, want string) {
	dir := t.TempDir()
	faults := slices.Clone(c.faults)
	for i := range faults {
		if faults[i].Done = filepath.Join(dir, fmt.Sprint("fault-", i)); i > 0 {
			faults[i].After = faults[i-1].Done
		}
	}
	g := newGroup(t, &group{boss: settings{Silence: faultSilence}, adjust: func(s *settings) { s.Faults = faults }})
	names := workers(c.workers)
	g.join(t, names...)
	keep := &keeper{g: g, stop: make(chan struct{})}
	for _, name := range names {
		keep.keep(name, func() time.Duration { return 0 })
	}
	var waking sync.WaitGroup
	t.Cleanup(func() {
		close(keep.stop)
		keep.running.Wait()
		waking.Wait()
	})
	out := filepath.Join(dir, "out")
	begin := g.line.place()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, c.common()), Workers: c.workers, Seconds: patience.Seconds()})
	for _, f := range faults {
		if f.Stop {
			waking.Go(func() { c.wakes(t, g, f, keep.stop) }) // ends with the test
		}
	}
	if end := g.await(t, "the run to end", begin, 3*patience, ended); end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	for _, f := range faults {
		if !exists(f.Done) {
			t.Errorf("no process has come to %s of rank %d at step %d", f.At, f.Rank, f.Step)
		}
	}
	sameRun(t, want, out, faultSteps)
	marks, kinds := marksOf(t, out)
	if kinds[telemetry.MarkRestart] > c.restarts || kinds[telemetry.MarkReplace]+kinds[telemetry.MarkRestart] == 0 {
		t.Errorf("the marks are %v\n%s", marks, g.describe())
	}
	events, _ := g.line.from(begin)
	steps := make(map[int]int)
	for _, e := range events {
		switch {
		case e.Kind == "replace" && e.Attrs["kept"] != "0":
			t.Errorf("workers that stay have read weights: %v", e)
		case e.Kind == "restart" && (c.restarts == 0 || e.Attrs["why"] == ""):
			t.Errorf("a restart: %v", e)
		case e.Kind == "step" && e.Step > 0:
			steps[e.Step]++
		}
	}
	for step, n := range steps {
		if n > 1 && c.restarts == 0 {
			t.Errorf("step %d has ended %d times", step, n)
		}
	}
}

// wakes lets a process that has stopped go on after twice the silence, when it was replaced in time. It joins again.
func (c *faulty) wakes(t *testing.T, g *group, f pointFault, stop <-chan struct{}) {
	for !exists(f.Done) {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	at, place := time.Now(), g.line.place()
	text, err := os.ReadFile(f.Done)
	for err == nil && len(text) == 0 {
		time.Sleep(time.Millisecond)
		text, err = os.ReadFile(f.Done)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Error(err)
		return
	}
	e, err := g.find(place, 2*faultSilence, func(e event) bool { return e.Kind == "replace" || e.Kind == "restart" })
	if took := time.Since(at); err != nil || e.Kind != "replace" || took > faultSilence+3*time.Second {
		t.Errorf("%s of rank %d: after %.2f s: %v %v", f.At, f.Rank, took.Seconds(), e, err)
	}
	time.Sleep(time.Until(at.Add(2 * faultSilence)))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
		return
	}
	g.mu.Lock()
	name := ""
	for n, p := range g.workers {
		if p.cmd.Process.Pid == pid {
			name = n
		}
	}
	g.mu.Unlock()
	if _, err := g.find(place, patience, joined(name)); err != nil {
		t.Errorf("worker %s, which was stopped at %s, does not join again: %v", name, f.At, err)
	}
}
