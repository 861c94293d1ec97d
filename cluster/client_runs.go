package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Submit submits a run and returns its id when the run has begun or is in the queue (Submission.Queue). If ctx ends
// earlier, the run stops. Errors in the config are *troupe.SetupError.
func (c *Client) Submit(ctx context.Context, s Submission) (id string, err error) {
	m, err := c.askFor(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Submit{Submit: &wire.SubmitRequest{Config: s.Config, File: s.File,
		Sets: s.Sets, Fresh: s.Fresh, FromStep: int64(s.FromStep),
		AcceptNewData: s.AcceptNewData, Queue: s.Queue, Name: s.Name, Registered: registry.Names(),
		Variables: variablesOf(s.File, s.Config, s.Sets)}}},
		s.Notice)
	if n := m.GetSubmit().GetQueued(); n > 0 && s.Notice != nil {
		s.Notice(fmt.Sprintf("run %s waits in the queue, at position %d", m.GetSubmit().GetId(), n))
	}
	return m.GetSubmit().GetId(), err
}

// variablesOf returns the variables that a config names as ${NAME}: those of this process's environment, and the folder of the
// config's file.
func variablesOf(file string, text []byte, sets []string) map[string]string {
	values := make(map[string]string)
	for _, name := range config.Variables(append([]string{string(text)}, sets...)...) {
		if name == config.FolderVariable && file != "" {
			if folder, err := filepath.Abs(filepath.Dir(file)); err == nil {
				values[name] = folder
			}
			continue
		}
		if v, set := os.LookupEnv(name); set {
			values[name] = v
		}
	}
	return values
}

// Runs lists the runs in the order in which they were submitted.
func (c *Client) Runs(ctx context.Context) ([]RunSummary, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_List{List: &wire.ListRequest{}}})
	var all []RunSummary
	for _, r := range m.GetList().GetRuns() {
		all = append(all, unpackSummary(r))
	}
	return all, err
}

// RunSummary is the short description of a run that lists show.
type RunSummary struct {
	ID, Name    string
	State       string // starting, queued, waiting, running, paused, stopping, done, stopped or failed
	Step, Steps int
	Loss        *float64
	ValLoss     *float64
	Workers     []string
	Submitted   time.Time
	SubmittedBy string
	Ended       time.Time // zero: it has not ended
	Out         string    // its folder on the coordinator's host
	Restarts    int
	LostSteps   int    // steps that it repeated after restarts
	Position    int    // in the queue, from 1; 0: it is not in the queue
	Checkpoint  string // the last checkpoint's folder
	Error       string
	Waiting     string // what the run waits for before it begins or resumes, and when it tries again
	// Warning is part of the reply to a request. It says that the request took effect but could not be
	// written to the journal.
	Warning string
}

// Over reports whether the run has ended.
func (s RunSummary) Over() bool { return !s.Ended.IsZero() }

// states are the names of the states of runs, by their numbers.
var states = [...]string{"starting", "waiting", "running", "paused", "stopping", "done", "stopped", "failed", "queued"}

func unpackSummary(w *wire.RunSummary) RunSummary {
	s := RunSummary{ID: w.GetId(), Name: w.GetName(), State: stateName(w.GetState()), Step: int(w.GetStep()), Steps: int(w.GetSteps()),
		Loss: w.Loss, ValLoss: w.ValLoss, Workers: w.GetWorkers(), Submitted: time.Unix(0, w.GetSubmittedNs()),
		SubmittedBy: w.GetSubmittedBy(), Out: w.GetOut(), Restarts: int(w.GetRestarts()), Checkpoint: w.GetDir(), Error: w.GetError(),
		Waiting: w.GetWaiting(), LostSteps: int(w.GetLostSteps()), Position: int(w.GetQueuePosition())}
	if w.GetEndedNs() != 0 {
		s.Ended = time.Unix(0, w.GetEndedNs())
	}
	return s
}

func unpackControl(w *wire.ControlReply) RunSummary {
	s := unpackSummary(w.GetRun())
	s.Warning = w.GetWarning()
	return s
}

// Status returns a run's summary and what each of its actors is doing. The run is given by its id,
// a prefix of its id, or its name.
func (c *Client) Status(ctx context.Context, run string) (RunSummary, event.Status, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Status{Status: &wire.RunStatusRequest{Run: run}}})
	if err != nil {
		return RunSummary{}, event.Status{}, err
	}
	s, err := apiwire.UnpackStatus(m.GetStatus())
	return unpackSummary(m.GetStatus().GetRun()), s, err
}

// Control is a request to a run in progress.
type Control int32

// The controls.
const (
	Pause      = Control(wire.ControlRequest_PAUSE)
	Resume     = Control(wire.ControlRequest_RESUME)
	Checkpoint = Control(wire.ControlRequest_CHECKPOINT)
	Stop       = Control(wire.ControlRequest_STOP) // after the current step, with a checkpoint
	Kill       = Control(wire.ControlRequest_KILL) // at once, without a checkpoint
)

// Change sends a run a request (see troupe.Change). It returns when the run has received it.
func (c *Client) Change(ctx context.Context, run string, ch troupe.Change) (RunSummary, error) {
	r := &wire.ControlRequest{Run: run, Step: ch.Step, Lr: ch.LR, MinLr: ch.MinLR}
	for action, kind := range changeKinds {
		if kind == ch.Kind {
			r.Action = action
		}
	}
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Control{Control: r}})
	if err != nil {
		return RunSummary{}, err
	}
	return unpackControl(m.GetControl()), nil
}

// Control sends a run a request. It returns when the run has received it.
func (c *Client) Control(ctx context.Context, run string, what Control) (RunSummary, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Control{Control: &wire.ControlRequest{Run: run,
		Action: wire.ControlRequest_Action(what)}}})
	if err != nil {
		return RunSummary{}, err
	}
	return unpackControl(m.GetControl()), nil
}

// Forecast asks the coordinator where it would place a config's ranks, and how long a step would take
// there. The workers measure for the given seconds. Paths in the config are on the coordinator's host.
func (c *Client) Forecast(ctx context.Context, text []byte, file string, sets []string, seconds float64) (*Forecast, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Forecast{Forecast: &wire.ForecastRequest{Config: text, File: file, Sets: sets,
		Seconds: seconds, Registered: registry.Names(), Variables: variablesOf(file, text, sets)}}})
	if err != nil {
		return nil, err
	}
	r := m.GetForecast()
	f := &Forecast{StepMS: r.GetStepMs(), TokensPerS: r.GetTokensPerS(), BubblePct: r.GetBubblePct(), MessageMS: r.GetMessageMs(),
		Apart: r.GetApart()}
	for _, k := range r.GetRanks() {
		f.Ranks = append(f.Ranks, RankForecast{int(k.GetRank()), k.GetWorker(), k.GetHost(), int(k.GetCores()), k.GetDevice(), k.GetBytes(),
			k.GetMemoryBytes()})
	}
	for _, l := range r.GetLinks() {
		f.Links = append(f.Links, LinkForecast{l.GetFrom(), l.GetTo(), l.GetLatencyMs(), l.GetBytesPerS()})
	}
	return f, nil
}

// Actions returns the recorded actions of a run's current step, on the coordinator's clock.
func (c *Client) Actions(ctx context.Context, run string) (troupe.Actions, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Actions{Actions: &wire.ActionsRequest{Run: run}}})
	if err != nil {
		return troupe.Actions{}, err
	}
	w := m.GetActions()
	a := troupe.Actions{Step: w.GetStep(), Phase: event.Phase(min(w.GetPhase(), uint32(event.Eval)))}
	if w.GetBeganNs() != 0 {
		a.Began = time.Unix(0, w.GetBeganNs())
	}
	if w.GetRecorded() {
		if a.Ranks, err = apiwire.UnpackRanks(w.GetRanks()); err != nil {
			return troupe.Actions{}, fmt.Errorf("invalid reply from the coordinator: %w", err)
		}
	}
	return a, nil
}
