package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ErrDetached is the error of Wait after Detach: the run continues.
var ErrDetached = errors.New("detached from the run, which continues")

// Followed is a coordinator's run that another process follows. It has the methods of *troupe.Run
// that make sense from there.
type Followed struct {
	ID       string
	Name     string
	LogEvery int // steps between printed lines: run.log_every of the config
	Position int // in the coordinator's queue when following began, from 1; 0: it is not in the queue

	c       *Client
	ctx     context.Context // ends with Detach
	cancel  context.CancelCauseFunc
	notice  func(string)
	running sync.WaitGroup
	events  chan troupe.Event
	feed    feed.Feed
	ready   chan struct{} // closed when info is set, or never will be
	done    chan struct{} // closed when result and err are final

	recording recording

	// The following goroutine's own until done or ready is closed:
	info   troupe.Info
	result troupe.Result
	err    error
	epoch  []byte
	after  uint64
}

// FollowOptions are the options of Follow.
type FollowOptions struct {
	// Notice gets what the run waits for before it begins, and the errors of background requests.
	// It may be nil.
	Notice func(text string)
	// Known says that the run exists. Follow then waits for a coordinator that can't be reached.
	Known bool
}

// Follow follows a run, given by its id, a prefix of its id, or its name. The events begin with the
// latest past ones.
func (c *Client) Follow(ctx context.Context, run string, o FollowOptions) (*Followed, error) {
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	f := &Followed{ID: run, LogEvery: 1, c: c, notice: o.Notice, events: make(chan troupe.Event, 16), feed: feed.New(),
		ready: make(chan struct{}), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	k, err := f.open(f.ctx)
	if err != nil && o.Known && (errors.Is(err, ErrLost) || errors.Is(err, ErrClosing)) {
		k, err = f.again(err)
	}
	if err != nil {
		f.cancel(nil)
		return nil, err
	}
	f.running.Add(1)
	go func() { // ends with the run, or with Detach
		defer f.running.Done()
		defer c.keep(f.ctx)()
		f.follow(k)
	}()
	return f, nil
}

// open requests the run's events.
func (f *Followed) open(ctx context.Context) (*call, error) {
	k, err := f.c.call(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Follow{Follow: &wire.FollowRequest{Run: f.ID, Epoch: f.epoch,
		After: f.after}}})
	if err != nil {
		return nil, err
	}
	m, err := k.next()
	if err == nil && m.GetFollowing() == nil {
		err = errors.New("unexpected reply from the coordinator: want a run to follow")
	}
	if err != nil {
		k.close()
		return nil, err
	}
	w := m.GetFollowing()
	if string(w.GetEpoch()) != string(f.epoch) {
		f.epoch, f.after = w.GetEpoch(), 0
	}
	if d := f.recording.begins(w.GetFollower()); d > 0 { // requested before the stream broke
		f.record(w.GetFollower(), d)
	}
	if f.Name == "" { // else it follows again, and they are known
		f.ID, f.Name, f.LogEvery = w.GetRun().GetId(), w.GetRun().GetName(), max(1, int(w.GetLogEvery()))
		f.Position = int(w.GetRun().GetQueuePosition())
	}
	return k, nil
}

// follow reads events until the run has ended, and reconnects when a connection breaks.
func (f *Followed) follow(k *call) {
	err := f.read(k)
	for err != nil && (errors.Is(err, ErrLost) || errors.Is(err, ErrSlow) || errors.Is(err, ErrClosing)) && f.ctx.Err() == nil {
		if !errors.Is(err, ErrSlow) {
			f.send(troupe.WarningEvent{Text: fmt.Sprintf("%v; reconnecting for up to %v", err, refollowTime)})
		}
		if k, err = f.again(err); err == nil {
			err = f.read(k)
		}
	}
	switch {
	case err != nil && f.ctx.Err() != nil:
		f.err = context.Cause(f.ctx)
	case err != nil:
		f.err = err
	}
	f.cancel(nil)
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	f.feed.Close()
	close(f.events)
	close(f.done)
}

// again reconnects to the run. It tries until the coordinator answers or refollowTime is over.
func (f *Followed) again(why error) (*call, error) {
	until := time.Now().Add(refollowTime)
	for pause := refollowFirst; ; pause = min(2*pause, refollowMost) {
		select {
		case <-time.After(pause):
		case <-f.ctx.Done():
			return nil, why
		}
		epoch := f.epoch
		k, err := f.open(f.ctx)
		if err == nil {
			if epoch != nil && string(epoch) != string(f.epoch) {
				f.send(troupe.WarningEvent{Text: "the coordinator has restarted; it resumes the run"})
			}
			return k, nil
		}
		if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosing) {
			return nil, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w (tried for %v)", errGone{err}, refollowTime)
		}
	}
}

// errGone is the error of a coordinator that the client no longer tries to reach. It is an ErrGone.
type errGone struct{ err error }

func (e errGone) Error() string        { return e.err.Error() }
func (e errGone) Is(target error) bool { return target == ErrGone }

// ErrGone: the client could not reach the coordinator for a minute and has stopped trying. The run
// may continue.
var ErrGone = errors.New("the connection to the coordinator failed for good")

// read reads events until the stream ends; nil: the run has ended.
func (f *Followed) read(k *call) error {
	defer k.close()
	for {
		m, err := k.next()
		if err != nil {
			return err
		}
		w := m.GetEvent()
		f.after = max(f.after, w.GetNumber())
		switch {
		case w.GetInfo() != nil:
			select {
			case <-f.ready: // the coordinator has resumed it
				f.send(troupe.WarningEvent{Text: fmt.Sprintf("the run resumed from step %d", w.GetInfo().GetResumedAt())})
			default:
				f.info = apiwire.UnpackInfo(w.GetInfo())
				close(f.ready)
			}
		case w.GetWaiting() != nil:
			select {
			case <-f.ready:
				f.send(troupe.WarningEvent{Text: w.GetWaiting().GetText()})
			default:
				f.notice(w.GetWaiting().GetText())
			}
		case w.GetEnd() != nil:
			f.result, f.err = apiwire.UnpackEnd(w.GetEnd())
			f.result.Steps = f.info.Steps
			return nil
		default:
			e, err := apiwire.UnpackEvent(w)
			if err != nil {
				return err
			}
			if e != nil {
				f.send(e)
			}
		}
	}
}

// send passes an event to the readers.
func (f *Followed) send(e troupe.Event) {
	f.feed.Publish(e)
	select {
	case f.events <- e:
	case <-f.ctx.Done():
	}
}

// Info describes the run. It waits until the run has begun; it is empty if the run never does.
func (f *Followed) Info() troupe.Info {
	<-f.ready
	return f.info
}

// Begun returns a channel that is closed when the run has begun, or following has ended.
func (f *Followed) Begun() <-chan struct{} { return f.ready }

// Events returns the channel of the run's events, in order. The caller must read them. The channel
// is closed when following ends.
func (f *Followed) Events() <-chan troupe.Event { return f.events }

// Status returns what every actor is doing. It is empty if the coordinator can't be reached.
func (f *Followed) Status() event.Status {
	ctx, cancel := context.WithTimeout(f.ctx, requestTime)
	defer cancel()
	_, s, err := f.c.Status(ctx, f.ID)
	if err != nil {
		f.notice(fmt.Sprintf("can't get the run's status: %v", err))
	}
	return s
}

// Stop stops the run after the current step, with a checkpoint.
func (f *Followed) Stop() { f.control(Stop) }

// Kill stops the run at once, without a checkpoint.
func (f *Followed) Kill() { f.control(Kill) }

// control sends the run a request and does not wait for the reply.
func (f *Followed) control(what Control) {
	f.running.Add(1)
	go func() { // ends with the answer, or with its time
		defer f.running.Done()
		ctx, cancel := context.WithTimeout(f.ctx, requestTime)
		defer cancel()
		_, err := f.c.Control(ctx, f.ID, what)
		switch {
		case err == nil || f.ctx.Err() != nil:
		case errors.Is(err, ErrLost): // who wants to leave must not wait for the coordinator
			f.cancel(errGone{fmt.Errorf("can't stop the run: %w", err)})
		default:
			f.notice(fmt.Sprintf("can't stop the run: %v", err))
		}
	}()
}

// Detach stops following; the run continues. Wait then returns ErrDetached.
func (f *Followed) Detach() { f.cancel(ErrDetached) }

// Wait waits until the run has ended, or following has, and returns how the run ended.
func (f *Followed) Wait() (troupe.Result, error) {
	<-f.done
	f.running.Wait()
	return f.result, f.err
}
