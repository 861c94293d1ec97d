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

// changeAnswer waits for the run's answer to a change.
type changeAnswer struct {
	change troupe.Change
	err    chan error // with a buffer of 1
}

// changeKinds are the changes of a run that an operator may request.
var changeKinds = map[wire.ControlRequest_Action]event.ChangeKind{wire.ControlRequest_PAUSE: event.ChangePause,
	wire.ControlRequest_RESUME:     event.ChangeResume,
	wire.ControlRequest_CHECKPOINT: event.ChangeCheckpoint, wire.ControlRequest_STOP: event.ChangeStop,
	wire.ControlRequest_RATE: event.ChangeRate}

// control carries out a request to the run.
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
		case err = <-wait: // the answer came first
		default:
			err = fmt.Errorf("run %s has ended", r.id)
		}
	case <-timeout.C: // the run is between two attempts; the next one gets the request
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// change passes a change to the run. For a stop at a step it returns a channel for the run's
// answer, because only the run knows whether that step has ended already.
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
			return nil, fmt.Errorf("%w: %d requests already wait for the run's answer, the limit", ErrTryAgain, len(r.answers))
		}
		wait = make(chan error, 1)
		r.answers = append(r.answers, changeAnswer{ch, wait})
	}
	if err := r.inner.Change(ch); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return wait, nil
}

// stop stops the run, after the current step or at once.
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
		return fmt.Errorf("%w: unknown action %d; use the same build on both sides", ErrRequest, action)
	}
	return nil
}

// kill stops a run without a checkpoint.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel()
	if r.inner != nil {
		r.inner.Kill()
	}
}

// control carries out a request to a run and writes it to the journal, for a restarted coordinator.
// If the journal can't be written, the request still takes effect, and the returned warning says so: a
// full disk must not keep a run from stopping.
func (s *runs) control(m *wire.ControlRequest, by string) (r *run, warning string, err error) {
	action := m.GetAction()
	if r, err = s.find(m.GetRun()); err != nil {
		return nil, "", err
	}
	if err := s.refuseQueued(r, action); err != nil {
		return nil, "", err
	}
	if err := r.control(m); err != nil {
		return nil, "", err
	}
	told := strings.ToLower(action.String())
	if action == wire.ControlRequest_RATE {
		told = fmt.Sprintf("change its learning rate: peak %.6g, floor %.6g", m.GetLr(), m.GetMinLr())
	}
	s.c.log.Info("run was told to "+told, "run", r.id, "at_step", m.GetStep(), "by", by)
	err = s.keep(r)
	if m.GetStep() == 0 && (action == wire.ControlRequest_STOP || action == wire.ControlRequest_KILL) {
		err = s.note(r, func(e *journal.Entry) { e.Stopping = true })
	}
	if err != nil {
		warning = fmt.Sprintf("run %s got the request, but the coordinator can't write its journal; it forgets the request if it restarts: %v",
			r.id,
			err)
		s.c.log.Error("can't write a request to the journal", "run", r.id, "err", err)
	}
	return r, warning, nil
}
