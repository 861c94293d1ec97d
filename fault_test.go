package troupe_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

func init() {
	stages.RegisterLayer("test-faulty", func(*stages.LayerOptions) (stages.Layer, error) { return faulty{}, nil })
}

// faulty is a layer that panics at step 5, while the device computes.
type faulty struct{}

func (faulty) Params() []stages.LayerParam { return nil }

func (faulty) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if p.Train() && p.Step() == 5 {
		p.Call("think", nil, nil, func(_, _ []tensorops.Array) error { panic("out of ideas") })
	}
	return in
}

func (faulty) InputGrad(_ *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor { return dout }

func (faulty) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// TestFaultBesideOthers: a run whose layer panics ends by itself, with its last checkpoint
// whole; another one in the same process and the same actor system goes on as if alone.
func TestFaultBesideOthers(t *testing.T) {
	dir := t.TempDir()
	alone := filepath.Join(dir, "alone")
	trainDigits(t, alone, "run.steps=40", "pipeline.stages=2")

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
	other := begin(digitsRun, "other", "run.steps=40", "pipeline.stages=2")
	stack := `model.stack=["input", "dense out=8 act=tanh", "test-faulty", "dense out=1", "mse"]`
	bad := begin(streamRun, "bad", stack)
	drain(bad)
	_, err := bad.Wait()
	var layer *stages.LayerError
	if !errors.As(err, &layer) || layer.Layer != "2.test-faulty" || !strings.Contains(err.Error(), "out of ideas") {
		t.Errorf("error %v", err)
	}
	finish(t, other)
	sameState(t, alone, filepath.Join(dir, "other"), 40)

	// Without the fault the run goes on from the checkpoint before it.
	if _, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: stepDir(filepath.Join(dir, "bad"), 3)}}); err != nil && !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("the checkpoint of step 3: %v", err)
	}
}
