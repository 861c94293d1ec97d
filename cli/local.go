package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// The states of a run on this machine that a cluster's runs do not have.
const stateCrashed = "crashed" // its process ended without saying so

// seen is a run as commands see it, on this machine or in a cluster.
type seen struct {
	cluster.RunSummary
	actors     event.Status
	phase      string   // "": it has ended, or it is not known
	lr         *float64 // nil: unknown
	tokensPerS *float64
	pid        int    // of its process on this machine
	followers  int    // processes that follow it, on this machine
	folder     string // of a run on this machine; "": it is a cluster's
	result     string // of a run on this machine that has ended: how, in a line
}

// title names the run in messages.
func (s seen) title() string {
	if s.folder != "" {
		return s.folder
	}
	return runName(s.RunSummary)
}

// localRun is a run on this machine, which commands see and steer.
type localRun struct {
	dir    string
	client *control.Client // nil: not connected
}

func (r *localRun) close() {
	if r.client != nil {
		r.client.Close()
		r.client = nil
	}
}

// reach sends the run's process a request. The error is control.ErrAbsent if no process listens.
func (r *localRun) reach(ctx context.Context, do func(*control.Client) (control.State, error)) (seen, error) {
	for again := r.client != nil; ; again = false {
		if r.client == nil {
			var err error
			if r.client, err = control.Dial(ctx, r.dir); err != nil {
				return seen{}, err
			}
		}
		s, err := do(r.client)
		if err == nil {
			return r.live(s), nil
		}
		r.close()
		if errors.Is(err, control.ErrGone) && again {
			continue // the connection was idle for too long, or the run has ended
		}
		return seen{}, err
	}
}

// status describes the run.
func (r *localRun) status(ctx context.Context) (seen, error) {
	s, err := r.reach(ctx, (*control.Client).Status)
	switch {
	case errors.Is(err, control.ErrAbsent), errors.Is(err, control.ErrGone):
		return r.fromFiles("")
	case errors.Is(err, control.ErrUser):
		return r.fromFiles(err.Error())
	}
	return s, err
}

// change requests a change.
func (r *localRun) change(ctx context.Context, ch troupe.Change) (seen, error) {
	return r.request(ctx, ch.Kind == event.ChangeStop, func(c *control.Client) (control.State, error) { return c.Change(ch) })
}

// kill ends the run at once.
func (r *localRun) kill(ctx context.Context) (seen, error) {
	return r.request(ctx, true, (*control.Client).Kill)
}

// ended waits until the run has ended.
func (r *localRun) ended(ctx context.Context, killed bool) (seen, error) {
	s, err := lookUntil(ctx, r, func(seen) bool { return false })
	switch {
	case err != nil:
		return s, err
	case !killed && s.Error != "":
		return s, fmt.Errorf("%s: %s", s.title(), s.Error)
	}
	return s, nil
}

// request is reach for requests that need the run's process. A process that stops may exit before it has answered.
func (r *localRun) request(ctx context.Context, stops bool, do func(*control.Client) (control.State, error)) (seen, error) {
	for began := time.Now(); ; {
		s, err := r.reach(ctx, do)
		if err == nil {
			return s, nil
		}
		gone := errors.Is(err, control.ErrGone)
		if !errors.Is(err, control.ErrAbsent) && !gone {
			return s, fmt.Errorf("%s: %w", r.dir, err)
		}
		if s, err = r.fromFiles(""); err != nil {
			return s, err
		}
		if stops && gone && s.Over() {
			return s, nil
		}
		if s.Over() || time.Since(began) > startTime {
			return s, s.deaf()
		}
		select { // it may be starting
		case <-time.After(lookLocal):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// startTime is how long a request waits for a process that has the run and does not listen yet.
const startTime = 5 * time.Second

// errEnded means that a run can't carry out a request because it has ended.
var errEnded = errors.New("the run has ended")

// deaf says why a run does not get requests.
func (s seen) deaf() error {
	if !s.Over() {
		return fmt.Errorf("%s: %s", s.title(), s.Waiting)
	}
	how := s.result
	if how == "" {
		how = fmt.Sprintf("%s at step %d/%d", s.State, s.Step, s.Steps)
	}
	return fmt.Errorf("%s: %w: %s; %s", s.title(), errEnded, how, s.again())
}

// again says how to train the run further.
func (s seen) again() string {
	if s.folder == "" {
		return "submit the same config again to resume it"
	}
	command := "engine run " + shellWord(s.folder)
	if s.State == event.OutcomeDone {
		return fmt.Sprintf("to train further: %s --set run.steps=N, with N above %d", command, max(s.Steps, s.Step))
	}
	if s.Checkpoint == "" {
		return command + " starts again at step 0: there is no checkpoint"
	}
	return command + " resumes it"
}

// live describes a run from its process's answer.
func (r *localRun) live(a control.State) seen {
	s := seen{RunSummary: cluster.RunSummary{ID: a.ID, Name: a.Name, State: "running", Step: a.Step, Steps: a.Steps, Loss: a.Loss,
		ValLoss: a.ValLoss, Submitted: a.Began, Out: a.Out, Restarts: a.Restarts, Checkpoint: a.Checkpoint},
		actors: a.Actors, phase: a.Actors.Activity(), lr: a.LR, tokensPerS: a.TokensPerS, pid: a.PID, followers: a.Followers, folder: r.dir}
	if s.Checkpoint == "" {
		s.Checkpoint = lastCheckpoint(r.dir)
	}
	if a.Actors.Paused() {
		s.State = "paused"
	}
	if s.requested(event.ChangeStop) {
		s.State = "stopping"
	}
	return s
}

// lastCheckpoint returns the folder of a run's last checkpoint; "": none.
func lastCheckpoint(dir string) string {
	path := ""
	_ = withStore(dir, func(st *checkpoint.Store, _ []int) error { // without one there is no checkpoint to name
		step, ok, err := st.Last()
		if err != nil || !ok {
			return err
		}
		look, err := st.Look(step, rundir.TrainerFile)
		path = look.Dir
		return err
	})
	return path
}

// fromFiles describes a run that does not answer, from its files. why: it can't be asked.
func (r *localRun) fromFiles(why string) (s seen, err error) {
	fsys, err := checkpoint.OpenFS(r.dir)
	if err != nil {
		return s, folder.Missing(err, "RUN", "folder", r.dir)
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	who, err := checkpoint.Holder(r.dir) // before its files: they may tell its end meanwhile
	if err != nil {
		return s, err
	}
	var marks []telemetry.Mark
	in := rundir.NewReader(fsys, rundir.ReaderOptions{Mark: func(m telemetry.Mark) { marks = append(marks, m) },
		Forget: func() { marks = nil }})
	if err := errors.Join(in.ReadConfig(), in.ReadMetrics(), in.ReadEvents()); err != nil {
		return s, err
	}
	s = seen{RunSummary: cluster.RunSummary{Name: filepath.Base(r.dir), State: stateCrashed, Out: r.dir, Checkpoint: lastCheckpoint(r.dir)},
		folder: r.dir}
	if in.Config != nil {
		s.Name, s.Steps = in.Config.Run.Name, in.Config.Run.Steps
	}
	if in.History != nil {
		step, _ := in.History.Last()
		s.Step, s.Loss, s.ValLoss, s.lr = step.Step, step.Loss, lastOf(in.History, "val_loss"), step.LR
	}
	last := s.markedBy(marks)
	ended := last != nil && last.Kind == telemetry.MarkEnd
	if ended && s.Step > last.Step {
		_, ended = last.Failure() // else a later process trained, and died before it noted its start
	}
	switch {
	case who != "":
		s.State, s.Waiting = "running", holding(who)
		if why != "" {
			s.Waiting = why
		}
		return s, nil
	case ended:
		s.State, s.result = event.Outcome(*last), last.Text
		s.Step = max(s.Step, last.Step)
		if text, failed := last.Failure(); failed {
			s.Error = text
		}
	case last == nil:
		s.State, s.result = "stopped", "it never began to train"
	default:
		s.result = fmt.Sprintf("its process ended without a word after step %d: it was killed, or the machine stopped", s.Step)
		s.Error = s.result
	}
	s.Ended = time.UnixMilli(1)
	if last != nil {
		s.Ended = time.UnixMilli(last.TimeMS)
	}
	if !ended && in.Changed.After(s.Ended) {
		s.Ended = in.Changed // a start with nothing left to do changes the files of a run that has ended
	}
	return s, nil
}

// markedBy takes the start and the restarts of the last process from the events, and returns the last event
// of a process that trained, or an end; nil: none.
func (s *seen) markedBy(marks []telemetry.Mark) (last *telemetry.Mark) {
	over := true // the last process has ended
	for i, m := range marks {
		if !over || m.Kind == telemetry.MarkStart || m.Kind == telemetry.MarkResume || m.Kind == telemetry.MarkEnd {
			last = &marks[i] // and not a warning of a start that had nothing left to do
		}
		switch m.Kind {
		case telemetry.MarkStart, telemetry.MarkResume:
			if over {
				s.Submitted, s.Restarts = time.UnixMilli(m.TimeMS), 0
			}
			over = false
		case telemetry.MarkRestart:
			s.Restarts++
		case telemetry.MarkEnd:
			over = true
		}
	}
	return last
}

// lastOf returns the last value of a curve.
func lastOf(h *history.History, name string) *float64 {
	if _, all := h.Figures(name); len(all) > 0 {
		return figure(all[len(all)-1])
	}
	return nil
}
