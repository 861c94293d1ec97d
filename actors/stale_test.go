package actors_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// newTensor makes a tensor that whoever gets it has to release.
func newTensor(t testing.TB, s tensorops.Stream) tensorops.Tensor {
	t.Helper()
	x, err := tensorops.NewTensor(s.Arena(), tensorops.Float32, 1, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// What is of another run or attempt, or of an order that has ended, is dropped, and
// its memory goes back; the run does not notice.
func TestStaleMessagesAreDropped(t *testing.T) {
	l := &log{}
	spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 4}.spec(t, l)
	spec.Run = uuid.New()
	paused := startPaused(t, spec, l)
	paused.step()
	paused.step()
	run := paused.run
	in := spec.Device.Memory().InUse // nothing: no action is under way
	now := actors.Header{Run: spec.Run, Attempt: run.Attempt(), Step: 2, Order: 2}
	for name, h := range map[string]actors.Header{
		"another run":     {Run: uuid.New(), Attempt: now.Attempt, Step: 3, Order: 3},
		"another attempt": {Run: now.Run, Attempt: uuid.New(), Step: 3, Order: 3},
		"ended order":     now,
		"older order":     {Run: now.Run, Attempt: now.Attempt, Step: 1, Order: 1},
	} {
		s := spec.Device.NewStream("another attempt's")
		run.Tell("stage 1", &actors.Transfer{Header: h, Kind: scheduler.ForwardEdge, To: 1, Tensor: newTensor(t, s)})
		run.Tell("stage 0", &actors.Transfer{Header: h, Kind: scheduler.BackwardEdge, Tensor: newTensor(t, s)})
		run.Tell("stage 0", &actors.TiedGradient{Header: h, Grad: stages.TiedGrad{Grad: newTensor(t, s)}})
		run.Tell("stage 0", &actors.Credit{Header: h, Kind: scheduler.ForwardEdge})
		batch, released := actors.NewTrackedBatch()
		run.Tell("stage 0", &actors.Data{Header: h, Batch: batch})
		run.Tell("scheduler", &actors.StageDone{Header: h, Losses: []actors.Loss{{Microbatch: 1, Report: stages.Report{Sum: 1000, Targets: 1}}},
			Norms: []stages.Norm{{Param: 0, Squared: 1000}}})
		if h.Order == 3 { // these name no order, only an attempt
			run.Tell("loader", &actors.DataRequest{Header: h})
			run.Tell("scheduler", &actors.StageReady{Header: h})
			run.Tell("scheduler", &actors.Applied{Header: h})
			run.Tell("scheduler", &actors.StateCopied{Header: h})
			run.Tell("scheduler", &actors.Saved{Header: h})
			run.Tell("checkpoint", &actors.BeginSave{Header: h})
			run.Tell("checkpoint", &actors.StageState{Header: h})
		}
		eventually(t, run, "the release of what is of "+name, func() bool { return released() && spec.Device.Memory().InUse == in })
		s.Close()
	}
	paused.free()
	if out := wait(t, run); out.Err != nil || out.State.Step != 4 {
		t.Errorf("the run ends with %+v", out)
	}
	for _, e := range l.steps() {
		if *e.Loss != 1.5 || *e.GradNorm != *l.steps()[0].GradNorm {
			t.Errorf("step %d has loss %g and norm %g", e.Step, *e.Loss, *e.GradNorm)
		}
	}
	if n := len(l.saves); n != 1 {
		t.Errorf("%d checkpoints are written", n)
	}
}

// The same input twice is a fault of the protocol: the run stops, and both are
// released.
func TestInputTwice(t *testing.T) {
	l := &log{}
	spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 4}.spec(t, l)
	spec.Run = uuid.New()
	paused := startPaused(t, spec, l)
	paused.step()
	run := paused.run
	next := actors.Header{Run: spec.Run, Attempt: run.Attempt(), Step: 2, Order: 2}
	s := spec.Device.NewStream("twice")
	for range 2 {
		run.Tell("stage 1", &actors.Transfer{Header: next, Kind: scheduler.ForwardEdge, To: 1, Tensor: newTensor(t, s)})
	}
	out := wait(t, run)
	if out.Err == nil || !strings.Contains(out.Err.Error(), "stage 1 failed") || !strings.Contains(out.Err.Error(), "twice") {
		t.Errorf("the run ends with %v", out.Err)
	}
	if m := spec.Device.Memory(); m.InUse != 0 {
		t.Errorf("%d bytes of tensors are left", m.InUse)
	}
}
