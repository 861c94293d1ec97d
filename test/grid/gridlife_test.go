package grid

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// gate is a layer that stops the second of two replicas in step 4, on its device, until somebody says
// what comes of it.
type gate struct{ testrun.Faulty }

var gateSays chan error

func init() {
	stages.RegisterLayer("test-gate", func(*stages.LayerOptions) (stages.Layer, error) { return gate{}, nil })
}

func (gate) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if p.Train() && p.Step() == 4 && p.FirstSample() == 6 {
		p.Call("wait", nil, nil, func(_, _ []tensorops.Array) error {
			if err := <-gateSays; err != nil {
				panic(err)
			}
			return nil
		})
	}
	return in
}

// TestGridWaits: a run says which rank holds up the others in their collectives; what becomes of
// that rank becomes of the run.
func TestGridWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		says error
		ask  func(*troupe.Run) // before
		want string
	}{
		{"goes on", nil, func(*troupe.Run) {}, ""},
		{"stops", nil, (*troupe.Run).Stop, ""},
		{"pauses", nil, func(r *troupe.Run) { r.Pause(); r.Resume() }, ""},
		{"panics", errors.New("out of ideas"), func(*troupe.Run) {}, "out of ideas"},
		{"is killed", nil, (*troupe.Run).Kill, actors.ErrKilled.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			gateSays = make(chan error, 1)
			cfg, err := config.Parse("run.toml", []byte(testrun.StreamRun), []string{"run.out=" + t.TempDir(), "parallel.data=2",
				"pipeline.stages=1",
				`model.stack=["input", "dense out=8 act=tanh", "test-gate", "dense out=1", "mse"]`}, nil)
			if err != nil {
				t.Fatal(err)
			}
			run := testrun.Start(t, cfg)
			ended := make(chan struct{})
			go func() { // ends with the run
				defer close(ended)
				testrun.Drain(run)
			}()
			var status event.Status
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				if status = run.Status(); strings.Contains(status.Explain(), "root: stage 0 (dp 1) is running") &&
					strings.Contains(status.String(), "collective 4 of group dp") {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("nobody waits:\n%v", status)
				}
			}
			for _, a := range status.Actors {
				if a.Actor == "stage 0 (dp 0)" && (a.Wait != event.WaitGroup || a.From != "stage 0 (dp 1)" ||
					!strings.HasPrefix(a.Collective, "all_reduce sum float32[") || !strings.Contains(a.Describe(), "collective 4 of group dp")) {
					t.Errorf("%s; %+v", a.Describe(), a)
				}
			}
			c.ask(run)
			gateSays <- c.says
			<-ended
			if _, err := run.Wait(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestGridEnds stops, kills and holds runs of grids at random moments: each ends, and what it has written
// is that of a run that was left alone.
func TestGridEnds(t *testing.T) {
	rounds := testrun.Sometimes(1, 6)
	for i, sets := range [][]string{
		{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2"},
		{"parallel.data=3", "pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true", "batch.sequences=4",
			"eval_batches=1"},
		{"parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2", "pipeline.schedule=zb-h1"},
	} {
		sets = append([]string{fmt.Sprint("run.steps=", testrun.Sometimes(24, 40)), "run.eval_every=4", "run.checkpoint_every=8", "run.keep=0"},
			sets...)
		for j, s := range sets {
			if s == "eval_batches=1" { // of which two replicas have nothing
				sets[j] = "run.eval_batches=1"
			}
		}
		want := filepath.Join(t.TempDir(), "want")
		testrun.Train(t, want, sets...)
		random := rand.New(rand.NewPCG(uint64(i), 1))
		for round := range rounds {
			t.Run(fmt.Sprintf("%d, %d", i, round), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "out")
				for again := 0; ; again++ {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					run, err := troupe.Start(ctx, testrun.NewConfig(t, out, sets...), troupe.Options{})
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan struct{})
					go func() { // ends with the run
						defer close(ended)
						testrun.Drain(run)
					}()
					if again < 3 {
						time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
						switch random.IntN(4) {
						case 0:
							run.Stop()
						case 1:
							run.Kill()
						case 2:
							run.Pause()
							run.Checkpoint()
							run.Resume()
							run.Stop()
						case 3:
							cancel()
						}
					}
					select {
					case <-ended:
					case <-time.After(time.Minute):
						t.Fatalf("it doesn't end:\n%v", run.Status())
					}
					result, err := run.Wait()
					if err != nil && !errors.Is(err, actors.ErrKilled) && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					if err == nil && !result.Stopped {
						break
					}
				}
				testrun.SameState(t, want, out, testrun.Sometimes(24, 40))
			})
		}
	}
}

// TestGridDocuments: where the ranks of a tensor group share positions, a microbatch of documents is filled up
// to a length that divides, which changes no loss.
func TestGridDocuments(t *testing.T) {
	sets := []string{"data.train=" + testrun.PairsOf(t, 120), "data.format=documents", "model.dropout=0", "batch.microbatch=1"}
	want, out := filepath.Join(t.TempDir(), "want"), filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	testrun.Train(t, out, append(sets, "parallel.tensor=4", "parallel.sequence=true", "pipeline.stages=2")...)
	testrun.NearFigures(t, want, out, 1e-5)
}
