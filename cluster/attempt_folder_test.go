package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
)

// sees and blind are the log lines about a worker that sees the run's folder or doesn't.
func sees(name string) func(event) bool { return saysOf(name, "worker sees the run's folder") }
func blind(name string) func(event) bool {
	return saysOf(name, "worker doesn't see the run's folder")
}

func saysOf(name, text string) func(event) bool {
	return func(e event) bool {
		return e.Kind == "log" && strings.HasPrefix(e.Text, text) && e.Attrs["worker"] == name
	}
}

// intact checks that every checkpoint of a run matches its manifest and that no unfinished one is left.
func intact(t testing.TB, out string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(out, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), ".tmp-"):
			t.Errorf("%s is left", e.Name())
		case e.IsDir() && strings.HasPrefix(e.Name(), "step-"):
			steps++
			report, err := checkpoint.VerifyAt(filepath.Join(out, "checkpoints", e.Name()))
			if err != nil || !report.Intact() {
				t.Errorf("%s: %v\n%v", e.Name(), err, report)
			}
		}
	}
	if steps == 0 {
		t.Error("there is no checkpoint")
	}
	for _, e := range names(t, out) {
		if strings.HasPrefix(e, ".tmp-") {
			t.Errorf("%s is left", e)
		}
	}
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestSharedFolder: checkpoints have the same bytes whether all workers write them, some, only the coordinator, or a single
// process. A run resumes from them with another number of workers and in one process.
func TestSharedFolder(t *testing.T) {
	beside(t)
	// The fourth worker has another folder of the same path.
	root, disk := t.TempDir(), t.TempDir()
	g := newGroup(t, &group{adjust: func(s *settings) {
		if s.Name == "worker-3" {
			s.View = [2]string{root, disk}
		}
	}})
	g.join(t, workers(4)...)
	want := filepath.Join(t.TempDir(), "want")
	// Some tensors are float32, and some bfloat16.
	mixed := []string{"device.dtype=bfloat16", "model.tie_embeddings=false", `model.freeze=["embed", "0-1", "4"]`}
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, mixed)})
	for i, c := range []struct {
		name    string
		numbers []int // of workers and stages: from the start, from step 2 and from step 4
		sets    []string
		see     int // workers of the first
	}{
		{"two write, then one, then four", []int{2, 1, 4}, nil, 2},
		{"three of four write, then two, then one", []int{4, 2, 1}, nil, 3},
		{"none writes, then two do", []int{4, 2, 2}, []string{"cluster.shared_folder=off"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(root, fmt.Sprint("out", i))
			for _, dir := range []string{"", "checkpoints"} { // there is such a folder on the other disk
				if err := os.MkdirAll(filepath.Join(disk, fmt.Sprint("out", i), dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for j, n := range c.numbers {
				place := g.line.place()
				sets := append([]string{fmt.Sprintf("pipeline.stages=%d", n)}, mixed...)
				if j == 0 {
					sets = append(sets, c.sets...)
				}
				g.train(t, command{Config: smallRun, Sets: keys(t, out, sets), FromStep: 2 * j, Workers: 4})
				events, _ := g.line.from(place)
				saw, blinded := 0, 0
				for _, e := range events {
					if blind("worker-3")(e) {
						blinded++
					}
					for _, w := range workers(4) {
						if sees(w)(e) {
							saw++
						}
					}
					if e.Kind == "log" && strings.Contains(e.Text, "cannot write its part") {
						t.Errorf("%v", e)
					}
				}
				if wants := min(n, 3); j == 0 && saw != c.see || j > 0 && saw != wants {
					t.Errorf("%d of %d workers saw the folder", saw, n)
				}
				if tried := n == 4 && (j > 0 || c.see > 0); tried != (blinded == 1) {
					t.Errorf("%d times a worker was found not to see the folder", blinded)
				}
				sameRun(t, want, out, 6)
				intact(t, out)
			}
			trainHere(t, command{Config: smallRun, Sets: keys(t, out, mixed), FromStep: 2})
			sameRun(t, want, out, 6)
			if got := fmt.Sprint(names(t, filepath.Join(disk, fmt.Sprint("out", i))),
				names(t, filepath.Join(disk, fmt.Sprint("out", i), "checkpoints"))); got != "[checkpoints] []" {
				t.Errorf("on the other disk there is %s", got)
			}
		})
	}
}

// TestDeniedFolder: a worker that sees the folder but can't write the files there sends its state, and one warning says so.
func TestDeniedFolder(t *testing.T) {
	sets := []string{"pipeline.stages=4"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g := newGroup(t, &group{adjust: func(s *settings) { s.Denied = s.Name == "worker-1" }})
	g.join(t, workers(2)...)
	g.train(t, command{Config: smallRun, Sets: keys(t, out, sets), Workers: 2})
	sameRun(t, want, out, 6)
	intact(t, out)
	events, _ := g.line.from(0)
	said := 0
	for _, e := range events {
		if e.Kind == "log" && strings.Contains(e.Text, "cannot write its part") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("it is said %d times\n%s", said, g.describe())
	}
}

// slowly makes a worker pause while it writes, with a partly written file open, until another file exists.
func slowly(s settings, t *teller) {
	var once sync.Once
	cluster.SetWriteOwn(func(ctx context.Context, fsys checkpoint.FS, out string, step int, tag string, own []checkpoint.Own) ([]uint32,
		error) {
		if step != s.SlowStep {
			return checkpoint.WriteOwn(ctx, fsys, out, step, tag, own)
		}
		stop := func() {
			once.Do(func() {
				t.tell(event{Kind: "reply", Text: "writing"})
				for _, err := os.Stat(s.Go); err != nil; _, err = os.Stat(s.Go) {
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		// It goes on whatever it was told meanwhile.
		sums, err := checkpoint.WriteOwn(context.Background(), slowFS{fsys, stop}, out, step, tag, own)
		t.tell(event{Kind: "reply", Text: fmt.Sprint("written: ", err)})
		return sums, err
	})
}

type slowFS struct {
	checkpoint.FS
	stop func()
}

func (f slowFS) Update(name string) (checkpoint.File, error) {
	file, err := f.FS.Update(name)
	return &slowFile{File: file, stop: f.stop}, err
}

type slowFile struct {
	checkpoint.File
	stop func()
	some bool
}

func (f *slowFile) WriteAt(p []byte, offset int64) (int, error) {
	if f.some {
		f.stop()
	}
	f.some = true
	return f.File.WriteAt(p, offset)
}

// slowGroup is a group whose first worker pauses while it writes the checkpoint of step 4, until release is called.
func slowGroup(t *testing.T, boss settings) (g *group, release func()) {
	t.Helper()
	goFile := filepath.Join(t.TempDir(), "go")
	g = newGroup(t, &group{boss: boss, adjust: func(s *settings) {
		if s.Name == "worker-0" {
			s.SlowStep, s.Go = 4, goFile
		}
	}})
	var once sync.Once
	release = func() {
		once.Do(func() {
			if err := os.WriteFile(goFile, nil, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(release) // before the group's end, which waits for it
	return g, release
}

func writing(e event) bool { return e.Kind == "reply" && e.Text == "writing" }
func wrote(e event) bool   { return e.Kind == "reply" && strings.HasPrefix(e.Text, "written: ") }

// TestKilledWhileItWrites: if a worker dies while it writes its part of a checkpoint, that checkpoint does not count, and the
// run resumes from the previous one.
func TestKilledWhileItWrites(t *testing.T) {
	sets := []string{"pipeline.stages=2"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g, _ := slowGroup(t, settings{})
	g.join(t, workers(3)...)
	begun := g.ask(t, command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 3, Seconds: patience.Seconds()})
	g.await(t, "worker-0 to write", 0, patience, writing)
	if _, err := os.Stat(stepFile(out, 4, "manifest.json")); err == nil {
		t.Error("the checkpoint is there while a worker writes it")
	}
	if err := g.workers["worker-0"].kill(); err != nil {
		t.Fatal(err)
	}
	end := g.await(t, "the run to end", 0, patience, func(e event) bool { return e.Kind == "end" && e.ID == begun.ID })
	if end.Error != "" {
		t.Fatalf("the run: %s\n%s", end.Error, g.describe())
	}
	g.await(t, "a restart", 0, 0, func(e event) bool { return e.Kind == "restart" })
	sameRun(t, want, out, 6)
	intact(t, out)
}

// TestCoordinatorKilledWhileTheyWrite: a restarted coordinator ignores an unfinished checkpoint, even if a worker still writes
// to it.
func TestCoordinatorKilledWhileTheyWrite(t *testing.T) {
	sets := []string{"pipeline.stages=2"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	trainHere(t, command{Config: smallRun, Sets: keys(t, want, sets)})
	g, release := slowGroup(t, settings{})
	g.join(t, workers(2)...)
	run := command{Do: "run", Config: smallRun, Sets: keys(t, out, sets), Workers: 2, Seconds: patience.Seconds()}
	g.ask(t, run)
	g.await(t, "worker-0 to write", 0, patience, writing)
	if err := g.lead.kill(); err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, name := range names(t, filepath.Join(out, "checkpoints")) {
		if strings.HasPrefix(name, ".tmp-step-00000004-") {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d unfinished checkpoints of step 4 in %q", left, names(t, filepath.Join(out, "checkpoints")))
	}
	// Another process takes the run up, and puts the folder in order, while the worker still has
	// a file of the old attempt open.
	trainHere(t, run)
	sameRun(t, want, out, 6)
	intact(t, out)
	release()
	g.await(t, "worker-0 to have written", 0, patience, wrote)
	sameRun(t, want, out, 6)
	intact(t, out)
	// And back on the workers, with the next coordinator.
	place := g.line.place()
	g.startCoordinator(t)
	for _, name := range workers(2) {
		g.await(t, name+" to join", place, patience, joined(name))
	}
	run.FromStep = 2
	g.train(t, run)
	sameRun(t, want, out, 6)
	intact(t, out)
}
