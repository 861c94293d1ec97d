package life

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

func init() {
	stages.RegisterLayer("test-faulty", func(*stages.LayerOptions) (stages.Layer, error) { return testrun.Faulty{}, nil })
}

// TestFaultBesideOthers: a run whose layer panics ends by itself, with its last checkpoint
// whole; another one in the same process and the same actor system goes on as if alone.
func TestFaultBesideOthers(t *testing.T) {
	dir := t.TempDir()
	alone := filepath.Join(dir, "alone")
	testrun.TrainDigits(t, alone, "run.steps=40", "pipeline.stages=2")

	system := actor.NewActorSystem()
	defer system.Shutdown()
	begin := func(text, out string, sets ...string) *troupe.Run {
		t.Helper()
		cfg, err := config.Parse("run.toml", []byte(text), append([]string{"run.out=" + filepath.Join(dir, out)}, sets...), nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := troupe.Start(context.Background(), cfg, troupe.Options{System: system})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	other := begin(testrun.DigitsRun, "other", "run.steps=40", "pipeline.stages=2")
	stack := `model.stack=["input", "dense out=8 act=tanh", "test-faulty", "dense out=1", "mse"]`
	bad := begin(testrun.StreamRun, "bad", stack)
	testrun.Drain(bad)
	_, err := bad.Wait()
	var layer *stages.LayerError
	if !errors.As(err, &layer) || layer.Layer != "2.test-faulty" || !strings.Contains(err.Error(), "out of ideas") {
		t.Errorf("error %v", err)
	}
	testrun.Finish(t, other)
	testrun.SameState(t, alone, filepath.Join(dir, "other"), 40)

	// Without the fault the run goes on from the checkpoint before it.
	if _, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: testrun.StepDir(filepath.Join(dir,
		"bad"), 3)}}); err != nil && !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("the checkpoint of step 3: %v", err)
	}
}
