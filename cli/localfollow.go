package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// followedHere is a run of another process on this machine, whose events this process shows.
type followedHere struct {
	run    *localRun // for requests; guarded by mu
	mu     sync.Mutex
	ctx    context.Context
	stream *control.Stream
	events chan troupe.Event
	gone   chan struct{} // closed by Detach
	leave  sync.Once

	// valid when events is closed
	result troupe.Result
	err    error
}

// followHere follows the run with a folder.
func followHere(ctx context.Context, dir string) (*followedHere, error) {
	c, err := control.Dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	stream, err := c.Follow()
	if err != nil {
		c.Close()
		return nil, err
	}
	f := &followedHere{run: &localRun{dir: dir}, ctx: ctx, stream: stream, events: make(chan troupe.Event, troupe.LimitEvents),
		gone: make(chan struct{})}
	go f.read() // ends with the run, or with Detach
	return f, nil
}

// read passes on the events until the run has ended.
func (f *followedHere) read() {
	defer close(f.events)
	defer f.stream.Close()
	for {
		e, err := f.stream.Next()
		if err != nil {
			f.err = err
			select {
			case <-f.gone:
				f.err = cluster.ErrDetached
			default:
			}
			return
		}
		if end, ok := e.(troupe.EndEvent); ok {
			f.result, f.err = end.Result, end.Err
			return
		}
		select {
		case f.events <- e:
		case <-f.gone:
			f.err = cluster.ErrDetached
			return
		}
	}
}

func (f *followedHere) Info() troupe.Info           { return f.stream.Info }
func (f *followedHere) Events() <-chan troupe.Event { return f.events }

func (f *followedHere) Wait() (troupe.Result, error) {
	for range f.events { // its end makes the result valid
	}
	return f.result, f.err
}

// Detach ends the following; the run continues.
func (f *followedHere) Detach() {
	f.leave.Do(func() {
		close(f.gone)
		f.stream.Close()
	})
}

// Status asks the run; it is empty if the run does not answer.
func (f *followedHere) Status() event.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, _ := f.run.status(f.ctx) // a reader of the status needs no error: the events tell the end
	return s.actors
}

// Change requests a change.
func (f *followedHere) Change(ch troupe.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.run.change(f.ctx, ch)
	return err
}

func (f *followedHere) Stop() { _ = f.Change(troupe.Change{Kind: event.ChangeStop}) }

func (f *followedHere) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.run.kill(f.ctx) // it has ended, or the events tell that it has not
}

// logEveryOf returns run.log_every of the run with a folder; 1 if it can't be read.
func logEveryOf(dir string) int {
	fsys, err := checkpoint.OpenFS(dir)
	if err != nil {
		return 1
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	in := rundir.NewReader(fsys, rundir.ReaderOptions{})
	if err := in.ReadConfig(); err != nil || in.Config == nil {
		return 1
	}
	return max(1, in.Config.Run.LogEvery)
}

// followRun shows a run on this machine until it ends, or the user stops following.
func (a *app) followRun(ctx context.Context, dir string, o runFlags, signals <-chan os.Signal) error {
	f, err := followHere(ctx, dir)
	if errors.Is(err, control.ErrAbsent) {
		s, err := (&localRun{dir: dir}).fromFiles("")
		if err != nil {
			return err
		}
		return s.deaf()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	show := a.newReporter(f, logEveryOf(dir), o)
	res, err := follow(f, show, signals)
	f.Detach()
	f.run.close()
	switch {
	case errors.Is(err, cluster.ErrDetached):
		say(a.err, "the run continues; to follow it again: engine follow %s", shellWord(dir))
		return errStopped
	case errors.Is(err, control.ErrGone):
		return fmt.Errorf("%s: %w; engine status %[1]s shows how it is", shellWord(dir), err)
	case err != nil:
		return err
	}
	show.end(res)
	if res.Stopped {
		return errStopped
	}
	return nil
}
