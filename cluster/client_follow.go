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

// ErrDetached: who followed the run does so no more; it goes on.
var ErrDetached = errors.New("detached from the run, which goes on")

// Followed is a run of a coordinator that is followed from another process. Its methods are
// those of *troupe.Run, as far as they make sense from there.
type Followed struct {
	ID       string
	Name     string
	LogEvery int // steps between printed lines, as the configuration has it

	c       *Client
	ctx     context.Context // ends with Detach
	cancel  context.CancelCauseFunc
	notice  func(string)
	running sync.WaitGroup
	events  chan troupe.Event
	feed    feed.Feed
	ready   chan struct{} // closed when info is there, or never will be
	done    chan struct{} // closed when result and err are final

	recording recording

	// Of the goroutine that follows, until done or ready is closed:
	info   troupe.Info
	result troupe.Result
	err    error
	epoch  []byte
	after  uint64
}

// FollowOptions are how a run is followed.
type FollowOptions struct {
	// Notice is told of what the run waits for before it begins, and of what can't be asked;
	// nil: nobody is.
	Notice func(text string)
	// Known says that the run is there: a coordinator that can't be reached is waited for from
	// the start.
	Known bool
}

// Follow follows a run: first what has happened lately, then what does.
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

// open asks for the run's events.
func (f *Followed) open(ctx context.Context) (*call, error) {
	k, err := f.c.call(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Follow{Follow: &wire.FollowRequest{Run: f.ID, Epoch: f.epoch,
		After: f.after}}})
	if err != nil {
		return nil, err
	}
	m, err := k.next()
	if err == nil && m.GetFollowing() == nil {
		err = errors.New("the coordinator answers something else than was asked")
	}
	if err != nil {
		k.close()
		return nil, err
	}
	w := m.GetFollowing()
	if string(w.GetEpoch()) != string(f.epoch) {
		f.epoch, f.after = w.GetEpoch(), 0
	}
	if d := f.recording.begins(w.GetFollower()); d > 0 { // it was asked for in an earlier following
		f.record(w.GetFollower(), d)
	}
	if f.Name == "" { // they stay as they are when it is followed again
		f.ID, f.Name, f.LogEvery = w.GetRun().GetId(), w.GetRun().GetName(), max(1, int(w.GetLogEvery()))
	}
	return k, nil
}

// follow reads events until the run has ended, and follows it again where a connection
// breaks.
func (f *Followed) follow(k *call) {
	err := f.read(k)
	for err != nil && (errors.Is(err, ErrLost) || errors.Is(err, ErrSlow) || errors.Is(err, ErrClosing)) && f.ctx.Err() == nil {
		if !errors.Is(err, ErrSlow) {
			f.send(troupe.WarningEvent{Text: fmt.Sprintf("%v; trying again for %v", err, refollowTime)})
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

// again follows the run once more, when the coordinator can be reached again.
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
				f.send(troupe.WarningEvent{Text: "the coordinator was started again, and takes the run up"})
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

// errGone is an error of a coordinator that is given up.
type errGone struct{ err error }

func (e errGone) Error() string        { return e.err.Error() }
func (e errGone) Is(target error) bool { return target == ErrGone }

// ErrGone: the coordinator could not be reached for long, and whether the run goes on is not
// known.
var ErrGone = errors.New("the coordinator can't be reached any more")

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
			case <-f.ready: // it was taken up
				f.send(troupe.WarningEvent{Text: fmt.Sprintf("the run was resumed from step %d", w.GetInfo().GetResumedAt())})
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

// send gives an event to who reads them.
func (f *Followed) send(e troupe.Event) {
	f.feed.Publish(e)
	select {
	case f.events <- e:
	case <-f.ctx.Done():
	}
}

// Info describes the run. It waits until that has begun; where it never does, it is empty.
func (f *Followed) Info() troupe.Info {
	<-f.ready
	return f.info
}

// Events are what happens, in order. They must be read; the channel is closed at the end.
func (f *Followed) Events() <-chan troupe.Event { return f.events }

// Status is what every actor is doing; nothing where the coordinator can't be asked.
func (f *Followed) Status() event.Status {
	ctx, cancel := context.WithTimeout(f.ctx, requestTime)
	defer cancel()
	_, s, err := f.c.Status(ctx, f.ID)
	if err != nil {
		f.notice(fmt.Sprintf("the run's status: %v", err))
	}
	return s
}

// Stop ends the run at the end of its step, with a checkpoint.
func (f *Followed) Stop() { f.control(Stop) }

// Kill ends the run at once.
func (f *Followed) Kill() { f.control(Kill) }

// control asks something of the run, and does not wait for an answer.
func (f *Followed) control(what Control) {
	f.running.Add(1)
	go func() { // ends with the answer, or with its time
		defer f.running.Done()
		ctx, cancel := context.WithTimeout(f.ctx, requestTime)
		defer cancel()
		_, err := f.c.Control(ctx, f.ID, what)
		switch {
		case err == nil || f.ctx.Err() != nil:
		case errors.Is(err, ErrLost): // nobody who wants to leave has to wait for its return
			f.cancel(errGone{fmt.Errorf("the run could not be told to stop: %w", err)})
		default:
			f.notice(fmt.Sprintf("the run could not be told to stop: %v", err))
		}
	}()
}

// Detach ends the following, not the run. Wait returns ErrDetached then.
func (f *Followed) Detach() { f.cancel(ErrDetached) }

// Wait waits for the run's end.
func (f *Followed) Wait() (troupe.Result, error) {
	<-f.done
	f.running.Wait()
	return f.result, f.err
}
