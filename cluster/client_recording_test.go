package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestRecording: a viewer can have a run's actions recorded. It gets the traces of all ranks and the actions of the current
// step, by one clock; other followers get no traces. The run's folder has the workers' memory and the norms of layers.
//
// It runs in a separate process, because a second transport in one process is a data race in protoactor.
func TestRecording(t *testing.T) {
	const own = "TROUPE_RECORDING_TEST"
	if os.Getenv(own) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRecording$")
		cmd.Env = append(os.Environ(), own+"=1")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("a few words of a text ", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startCoordinator(t, Config{}, 2)
	o := newTestClient(t, c, RoleOperator)
	ctx := t.Context()
	out := filepath.Join(dir, "out")
	id, err := o.Submit(ctx, Submission{File: "c.toml", Config: fmt.Appendf(nil,
		"[run]\nname = \"r\"\nout = %q\nsteps = 1000000\neval_every = 0\ncheckpoint_every = 0\nstats_every = 1\n[model]\nlayers = 2\nhidden = 8\nheads = 2\ncontext = 8\n[data]\ntrain = [%q]\n[batch]\nsequences = 4\nmicrobatch = 2\n[optimizer]\nwarmup_steps = 2\ndecay = \"constant\"\n[pipeline]\nstages = 2\n", out, text)})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := o.Follow(ctx, id, FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newTestClient(t, c, RoleViewer).Follow(ctx, id, FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := f.Subscribe()
	read := func(f *Followed, each func(troupe.Event)) (done chan struct{}) {
		done = make(chan struct{})
		go func() { // ends with the run
			defer close(done)
			for e := range f.Events() {
				each(e)
			}
		}()
		return done
	}
	traces := 0
	plainDone := read(plain, func(e troupe.Event) {
		if step, ok := e.(troupe.StepEvent); ok && step.Trace != nil {
			traces++
		}
	})
	done := read(f, func(troupe.Event) {})
	f.Record(time.Hour)
	for e := range s.Events() {
		step, ok := e.(troupe.StepEvent)
		if !ok || step.Trace == nil {
			continue
		}
		if len(step.Trace) != 2 || len(step.Trace[0]) != 4 || len(step.Trace[1]) != 4 || len(step.Clocks) != 2 {
			t.Errorf("the trace of step %d is %v, with clocks %+v", step.Step, step.Trace, step.Clocks)
		}
		if age := time.Since(step.Trace[0][0].Start); age < -time.Second || age > time.Minute {
			t.Errorf("step %d began %v ago", step.Step, age)
		}
		break
	}
	heard := false
	for !heard { // beats bring it, and the steps' ends
		a := f.Actions()
		if a.Step == 0 || len(a.Ranks) != 2 {
			t.Fatalf("the actions are %+v", a)
		}
		heard = len(a.Ranks[0]) > 0 && len(a.Ranks[1]) > 0
	}
	s.Close()
	// The workers tell what memory they have taken.
	for waits := time.Now(); ; {
		all, err := telemetry.ReadStats(filepath.Join(out, "stats.jsonl"))
		if n := len(all); err == nil && n > 0 && len(all[n-1].MemBytes) == 2 && min(all[n-1].MemBytes[0], all[n-1].MemBytes[1]) > 0 {
			if l := all[n-1].Layers; len(l) != 4 || l[0].WeightNorm == nil || *l[0].WeightNorm <= 0 || *l[3].GradNorm <= 0 {
				t.Errorf("the layers are %+v", l)
			}
			break
		}
		if time.Since(waits) > time.Minute {
			t.Fatalf("no stats with the workers' memory: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := o.Control(ctx, id, Stop); err != nil {
		t.Fatal(err)
	}
	<-done
	<-plainDone
	for _, f := range []*Followed{f, plain} {
		if _, err := f.Wait(); err != nil {
			t.Error(err)
		}
	}
	if traces > 0 {
		t.Errorf("%d traces came to who has not asked", traces)
	}
	marks, err := telemetry.ReadMarks(filepath.Join(out, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, m := range marks {
		said += m.Kind + " " + m.Text + "\n"
	}
	for _, want := range []string{"start", "stop", "end stopped at step"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
}
