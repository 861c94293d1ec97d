package cluster_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

var renewals = flag.Int("renewals", 100, "times that TestManyRenewals replaces a rank, 20 or more")

// holding is what a process or a folder holds.
type holding struct {
	goroutines, descriptors, files int
	rssBytes                       int64
	where                          string // the goroutines are
}

func (h holding) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d files, %.1f MiB", h.goroutines, h.descriptors, h.files, float64(h.rssBytes)/(1<<20))
}

// TestManyRenewals: a run whose workers die a hundred times leaves nothing behind in the coordinator, in the workers that stay and in the
// run's folder: goroutines, descriptors, memory, files. Each step ends once. It runs only with TROUPE_FAULTS=1 (make check-faults).
func TestManyRenewals(t *testing.T) {
	if os.Getenv("TROUPE_FAULTS") == "" {
		t.Skip("takes minutes: run it with TROUPE_FAULTS=1 (make check-faults)")
	}
	if *renewals < 20 {
		t.Fatalf("-renewals %d: give 20 or more", *renewals)
	}
	g := newGroup(t, &group{boss: settings{Silence: faultSilence}})
	names := workers(5)
	g.join(t, names...)
	keep := &keeper{g: g, stop: make(chan struct{})}
	for _, name := range names {
		keep.keep(name, func() time.Duration { return 0 })
	}
	t.Cleanup(func() {
		close(keep.stop)
		keep.running.Wait()
	})
	sets := []string{"run.steps=1000000", "run.checkpoint_every=5", "run.eval_every=0", "run.keep=1", "pipeline.stages=3",
		`cluster.shadow="on"`, "cluster.rebalance=false", "cluster.max_restarts=0"}
	out := filepath.Join(t.TempDir(), "out")
	begin := g.line.place()
	g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 5, Seconds: patience.Seconds()})
	g.await(t, "step 3", begin, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 3 })
	watched := []*process{g.lead}
	for _, rank := range []int{0, 2} { // rank 1 is replaced
		name := withRanks(t, g, rank)
		g.mu.Lock()
		watched = append(watched, g.workers[name])
		g.mu.Unlock()
	}
	var early []holding
	for i := range *renewals {
		if i == 10 {
			early = heldBy(t, g, watched, out)
		}
		place := g.line.place()
		name := withRanks(t, g, 1)
		g.mu.Lock()
		p := g.workers[name]
		g.mu.Unlock()
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
		e := g.await(t, fmt.Sprint("renewal ", i+1), place, patience, func(e event) bool {
			return e.Kind == "replace" || e.Kind == "restart" || ended(e)
		})
		if e.Kind != "replace" || e.Attrs["kept"] != "0" {
			t.Fatalf("renewal %d: %v %v\n%s", i+1, e, e.Attrs, g.describe())
		}
		g.await(t, "the next step", place, patience, func(next event) bool {
			return next.Kind == "step" && next.Step > e.Step && next.At.After(e.At) || ended(next)
		})
		g.await(t, "a spare", place, patience, joined(name))
	}
	late := heldBy(t, g, watched, out)
	for i, p := range watched {
		a, b := early[i], late[i]
		t.Logf("%s after 10 renewals: %v; after %d: %v", p.name, a, *renewals, b)
		if b.goroutines > a.goroutines+6 || b.descriptors > a.descriptors+6 || b.files > a.files+2 || b.rssBytes > a.rssBytes*5/4+16<<20 {
			t.Errorf("%s holds more after %d renewals than after 10; its goroutines were\n%s\nand are\n%s", p.name, *renewals, a.where, b.where)
		}
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeStop}})
	end := g.await(t, "the run to end", begin, patience, ended)
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	records, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if i > 0 && r.Step != records[i-1].Step+1 {
			t.Errorf("the line of step %d follows that of step %d", r.Step, records[i-1].Step)
		}
	}
}

// heldBy measures processes while their run is paused, and the run's folder for the first of them.
func heldBy(t *testing.T, g *group, all []*process, out string) []holding {
	t.Helper()
	place := g.line.place()
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangePause}})
	g.await(t, "the pause", place, patience, kindOf("pause"))
	time.Sleep(24 * time.Second) // dials of workers that have died end after transport.LimitConnectTime; two may follow each other
	var found []holding
	for i, p := range all {
		var h holding
		if i == 0 {
			e := g.ask(t, command{Do: "goroutines"})
			h.goroutines, h.where = e.Count, e.Text
			if err := filepath.WalkDir(out, func(string, os.DirEntry, error) error { h.files++; return nil }); err != nil {
				t.Fatal(err)
			}
		} else {
			asked := g.line.place()
			if _, err := fmt.Fprintln(p.in, "goroutines"); err != nil {
				t.Fatal(err)
			}
			e := g.await(t, "an answer", asked, patience, func(e event) bool { return e.Kind == "reply" && e.ID == 0 })
			h.goroutines, h.where = e.Count, e.Text
		}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		use, err := usageOf(p.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		h.descriptors, h.rssBytes = len(fds), use.rssBytes
		found = append(found, h)
	}
	g.ask(t, command{Do: "change", Change: troupe.Change{Kind: troupe.ChangeResume}})
	return found
}

// ownLayers is a classifier, whose layers are not those of a language model.
const ownLayers = `
[run]
seed = 7

[model]
family = "stack"
stack = ["input field=x", "dense out=64 act=gelu", "dense out=64 act=gelu", "dense out=10", "cross_entropy"]

[data]
format = "csv"
label = "label"
scale = 0.0625

[batch]
sequences = 16
microbatch = 4
`

// TestNotReplaced: a run of which no other process has a rank's state restarts from its last checkpoint, and the event says why. No step is
// lost to the bits. Ranks on GPUs: TestGPUsAreNotReplaced of tensorops/cuda.
func TestNotReplaced(t *testing.T) {
	digits, err := filepath.Abs("../examples/digits")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		config string
		sets   []string
		lost   []int // ranks
		why    string
	}{
		{"zero", smallRun, []string{"parallel.data=2", "pipeline.stages=2", "parallel.zero=1"}, []int{1}, "parallel.zero = 1"},
		{"narrow state", smallRun, []string{"pipeline.stages=3", `optimizer.state_dtype="bfloat16"`}, []int{1}, "optimizer.state_dtype"},
		{"no shadows", smallRun, []string{"pipeline.stages=3", `cluster.shadow="off"`}, []int{1}, `cluster.shadow is "off"`},
		{"own layers", ownLayers, []string{"pipeline.stages=3", `cluster.shadow="auto"`,
			fmt.Sprintf("data.train=[%q]", digits+"/digits-train.csv"), fmt.Sprintf("data.val=[%q]", digits+"/digits-test.csv")}, []int{1},
			"the program's own layers"},
		{"a rank and its shadow", smallRun, []string{"pipeline.stages=3", `cluster.shadow="on"`}, []int{1, 2},
			"rank 1 is lost, and its shadow, which was with rank 2, too"},
		{"all replicas", smallRun, []string{"parallel.data=2", "pipeline.stages=2"}, []int{0, 2}, "all ranks with the weights of rank "},
	} {
		if os.Getenv("TROUPE_FAULTS") == "" && c.name != "zero" && c.name != "own layers" && c.name != "a rank and its shadow" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := newGroup(t, &group{boss: settings{Silence: faultSilence}})
			g.join(t, workers(5)...)
			sets := append([]string{"run.steps=24", "run.checkpoint_every=6", "run.eval_every=0", "run.keep=1"}, c.sets...)
			want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
			trainHere(t, command{Config: c.config, Sets: keys(t, want, sets)})
			begin := g.line.place()
			g.ask(t, command{Do: "run", Config: c.config, Sets: keys(t, out, sets), Workers: 5, Seconds: patience.Seconds()})
			g.await(t, "step 8", begin, patience, func(e event) bool { return e.Kind == "step" && e.Step >= 8 })
			g.killAtOnce(t, c.lost)
			e := g.await(t, "a restart", begin, patience, func(e event) bool { return e.Kind == "restart" || e.Kind == "replace" || ended(e) })
			if e.Kind != "restart" || !strings.Contains(e.Attrs["why"], c.why) {
				t.Fatalf("%v %v, want a restart because of %s\n%s", e, e.Attrs, c.why, g.describe())
			}
			if end := g.await(t, "the run to end", begin, 3*patience, ended); end.Error != "" {
				t.Fatalf("the run: %s\n%s", end.Error, g.describe())
			}
			sameRun(t, want, out, 24)
		})
	}
}
