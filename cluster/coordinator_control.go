package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// changeAnswer is what the run says to a change.
type changeAnswer struct {
	change troupe.Change
	err    chan error // with room for it
}

// changeKinds are the changes of a run that an operator may ask for.
var changeKinds = map[wire.ControlRequest_Action]event.ChangeKind{wire.ControlRequest_PAUSE: event.ChangePause,
	wire.ControlRequest_RESUME:     event.ChangeResume,
	wire.ControlRequest_CHECKPOINT: event.ChangeCheckpoint, wire.ControlRequest_STOP: event.ChangeStop,
	wire.ControlRequest_RATE: event.ChangeRate}

// control does what somebody asks of the run.
func (r *run) control(m *wire.ControlRequest) error {
	action := m.GetAction()
	kind := changeKinds[action]
	if kind == "" || action == wire.ControlRequest_STOP && m.GetStep() == 0 {
		return r.stop(action)
	}
	ch := troupe.Change{Kind: kind, Step: m.GetStep(), LR: m.GetLr(), MinLR: m.GetMinLr()}
	wait, err := r.change(ch)
	if err != nil || wait == nil {
		return err
	}
	timeout := time.NewTimer(changeTime)
	defer timeout.Stop()
	select {
	case err = <-wait:
	case <-r.done:
		select {
		case err = <-wait: // it came first
		default:
			err = fmt.Errorf("run %s has ended", r.id)
		}
	case <-timeout.C: // between two attempts; it is asked for in the next
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// change asks the run for a change. Of a stop at a step the answer comes: whether that has
// ended only the run itself knows.
func (r *run) change(ch troupe.Change) (wait chan error, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over():
		return nil, fmt.Errorf("%w: run %s has ended", ErrRequest, r.id)
	case r.inner == nil:
		if err := ch.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
		return nil, r.request(ch)
	}
	if ch.Kind == event.ChangeStop {
		if len(r.answers) >= limitRequests {
			return nil, fmt.Errorf("%w: %d others wait for the run's answer", ErrTryAgain, len(r.answers))
		}
		wait = make(chan error, 1)
		r.answers = append(r.answers, changeAnswer{ch, wait})
	}
	if err := r.inner.Change(ch); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return wait, nil
}

// stop ends the run, at the end of its step or at once.
func (r *run) stop(action wire.ControlRequest_Action) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over() {
		return fmt.Errorf("%w: run %s has ended", ErrRequest, r.id)
	}
	switch action {
	case wire.ControlRequest_STOP, wire.ControlRequest_KILL:
		r.asked, r.state = true, wire.RunSummary_STOPPING
		switch {
		case r.inner == nil:
		case action == wire.ControlRequest_KILL:
			r.inner.Kill()
			return nil
		default:
			r.inner.Stop()
			return nil
		}
		r.cancel()
	default:
		return fmt.Errorf("%w: no such action: %d", ErrRequest, action)
	}
	return nil
}

// kill ends a run without a checkpoint.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel()
	if r.inner != nil {
		r.inner.Kill()
	}
}

// control does what somebody asks of a run, and notes it for a coordinator that is started again.
// Where it can't be noted it is done all the same, and the warning says so: a full disk must not
// keep a run from being stopped.
func (s *runs) control(m *wire.ControlRequest, by string) (r *run, warning string, err error) {
	action := m.GetAction()
	if r, err = s.find(m.GetRun()); err != nil {
		return nil, "", err
	}
	if err := r.control(m); err != nil {
		return nil, "", err
	}
	s.c.log.Info("told a run to "+strings.ToLower(action.String()), "run", r.id, "at_step", m.GetStep(), "by", by)
	err = s.keep(r)
	if m.GetStep() == 0 && (action == wire.ControlRequest_STOP || action == wire.ControlRequest_KILL) {
		err = s.note(r, func(e *journal.Entry) { e.Stopping = true })
	}
	if err != nil {
		warning = fmt.Sprintf("run %s was told, but the coordinator could not note it, and would not know it when it is started again: %v", r.id,
			err)
		s.c.log.Error("a request is not noted", "run", r.id, "err", err)
	}
	return r, warning, nil
}
