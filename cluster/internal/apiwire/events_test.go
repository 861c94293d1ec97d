package apiwire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// over sends a message over the wire.
func over[M proto.Message](t *testing.T, m, to M) M {
	t.Helper()
	text, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func ptr(v float64) *float64 { return &v }

// TestEventsArrive: every kind of event arrives unchanged.
func TestEventsArrive(t *testing.T) {
	status := event.Status{Time: time.Unix(100, 5), Actors: []event.Snapshot{
		{Actor: "stage 1", Rank: 1, Step: 3, Doing: event.Waiting, Action: scheduler.Action{Chunk: 1, Type: scheduler.F, Microbatch: 2},
			Wait: event.WaitActivation, From: "stage 0", Held: 1, Need: 2,
			Since: time.Unix(99, 0), Host: "b", Heard: time.Unix(98, 0)},
		{Actor: "loader", Rank: -1, Since: time.Unix(90, 0)},
	}}
	step := troupe.StepEvent{Record: telemetry.Record{Step: 4, Tokens: 5, Skipped: true, Update: "kept",
		Metrics: map[string]float64{"accuracy": 0.5}, ValMetrics: map[string]float64{"accuracy": 0.25},
		ValLosses: map[string]float64{"legal": 2.5}}, IdealBubblePct: 10}
	for i := range telemetry.Figures {
		telemetry.Figures[i].Set(&step.Record, ptr(float64(i+1)))
	}
	step.LR = ptr(0)
	for _, e := range []troupe.Event{
		step,
		troupe.StepEvent{},
		troupe.CheckpointEvent{Step: 4, Dir: "a/b", Best: true, Took: time.Second},
		troupe.CheckpointEvent{Step: 4, Dir: "a/b", Best: true, Weights: true, Took: time.Second},
		troupe.WarningEvent{Text: "mind"},
		troupe.RestartEvent{Err: errors.New("lost"), Restart: 2, Most: 10, Why: "no room"},
		troupe.ReplaceEvent{Step: 6, Ranks: []int{2, 3}, Err: errors.New("worker w1 failed"), Halted: 1, Found: 2, Loaded: 3,
			Source: "shadow", Bytes: 4, KeptBytes: 5},
		troupe.RegroupEvent{Step: 7, Leaving: []string{"w1"}, Free: []string{"w2", "w3"}},
		troupe.StallEvent{Quiet: time.Minute, Status: status},
		troupe.PauseEvent{Step: 7, Paused: true},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeRate, Step: 8, LR: 0.5, MinLR: 0.25, Note: "optimizer.lr 1.0 → 0.5"}},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeStop, Step: 2}, Err: errors.New("the step is over")},
	} {
		got, err := UnpackEvent(over(t, PackEvent(e), new(wire.RunEvent)))
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, %v, want %+v", got, err, e)
		}
	}
	info := troupe.Info{Name: "n", Out: "o", Family: "gpt2", Parameters: 1, Frozen: 25, Vocab: 2, TrainTokens: 3, ValTokens: 4, EvalWindows: 5, EvalSets: "legal (3 windows)",
		EpochWindows: 6, EpochSteps: 7, Epochs: 8, Steps: 9, ResumedAt: 10, Schedule: "1f1b", Stages: 11, Chunks: 12,
		Microbatches: 13, Layout: "E|L", BubblePct: 14, PeakInFlight: []int{15, 16}, Device: "cpu", Threads: 17, Kernels: "avx2", Samples: true,
		Ranks: 44, Grid: "tp 2", Changed: "run.keep 3 → 1",
		Packing: &troupe.Packing{Mode: "split", Sequences: 45, Documents: 46, FullPct: 47, Targets: 48}}
	if got := UnpackInfo(over(t, PackInfo(info), new(wire.RunInfo))); !reflect.DeepEqual(got, info) {
		t.Errorf("got %+v, want %+v", got, info)
	}
	res := troupe.Result{Step: 1, Stopped: true, FirstValLoss: 2, LastValLoss: 3, BestValLoss: 4, BestStep: 5, Dir: "d",
		Updates: troupe.Updates{Kept: 6, RolledBack: 7, Waited: 8}}
	if got, err := UnpackEnd(over(t, PackEnd(res, nil), new(wire.EndEvent))); err != nil || !reflect.DeepEqual(got, res) {
		t.Errorf("got %+v, %v, want %+v", got, err, res)
	}
	if e, err := UnpackEvent(&wire.RunEvent{}); e != nil || err != nil {
		t.Errorf("no event: %v, %v", e, err)
	}
}

// TestFiguresOfOtherBuilds: builds before telemetry.Figures had a field for each figure, and later builds may have unknown
// figures.
func TestFiguresOfOtherBuilds(t *testing.T) {
	got := unpackStep(over(t, &wire.StepEvent{Step: 1, Loss: ptr(0.5), PeakMemBytes: 3, PeakPct: ptr(4),
		Figures: map[string]float64{"of_tomorrow": 1, "loss": 9}}, new(wire.StepEvent)))
	if want := (troupe.StepEvent{Record: telemetry.Record{Step: 1, Loss: ptr(0.5), PeakMemBytes: 3, PeakPct: ptr(4)}}); !reflect.DeepEqual(got,
		want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w := PackStep(troupe.StepEvent{Record: telemetry.Record{Loss: ptr(0.5), PeakMemBytes: 3, PeakPct: ptr(4)}})
	if w.GetLoss() != 0.5 || w.GetPeakMemBytes() != 3 || w.GetPeakPct() != 4 || len(w.GetFigures()) != 0 {
		t.Errorf("a build before finds %v", w)
	}
}

// TestErrorsArrive: an error arrives with its text and the kind that callers test for.
func TestErrorsArrive(t *testing.T) {
	_, parsed := config.Parse("c.toml", []byte("[run]\nstepps = 1\nname = 2\n"), nil, nil)
	long := errors.New(strings.Repeat("\xff", 3*LimitErrorBytes))
	for _, c := range []struct {
		err  error
		is   error // nil: a *troupe.SetupError
		same bool
	}{
		{&troupe.SetupError{Err: parsed}, nil, true},
		{&troupe.SetupError{Err: errors.New("no data")}, nil, true},
		{fmt.Errorf("%w: two are missing", troupe.ErrNoWorkers), troupe.ErrNoWorkers, true},
		{fmt.Errorf("%w: by process 1", checkpoint.ErrLocked), ErrTryAgain, true},
		{fmt.Errorf("%w: x", ErrNoRun), ErrNoRun, true},
		{fmt.Errorf("%w: x", ErrForbidden), ErrForbidden, true},
		{fmt.Errorf("%w: x", ErrRequest), ErrRequest, true},
		{ErrSlow, ErrSlow, true},
		{ErrClosing, ErrClosing, true},
		{actors.ErrKilled, actors.ErrKilled, true},
		{long, nil, false},
	} {
		got := UnpackError(over(t, PackError(c.err), new(wire.ApiError)))
		var setup *troupe.SetupError
		switch {
		case c.same && got.Error() != c.err.Error():
			t.Errorf("%v arrives as %v", c.err, got)
		case c.is != nil && !errors.Is(got, c.is):
			t.Errorf("%v is not %v", got, c.is)
		case c.is == nil && c.same && !errors.As(got, &setup):
			t.Errorf("%v is no error of the setup", got)
		case len(got.Error()) > LimitErrorBytes+10:
			t.Errorf("%d bytes arrive", len(got.Error()))
		}
	}
	if UnpackError(PackError(nil)) != nil {
		t.Error("no error arrives as one")
	}
}
