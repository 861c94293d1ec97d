package cli

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// fakeRun is a run whose reactions the test decides.
type fakeRun struct {
	events         chan troupe.Event
	onStop, onKill func()
	err            error
	stops, kills   int
}

func (f *fakeRun) Events() <-chan troupe.Event { return f.events }
func (f *fakeRun) Info() troupe.Info           { return troupe.Info{} }
func (f *fakeRun) Status() event.Status        { return event.Status{} }
func (f *fakeRun) Wait() (troupe.Result, error) {
	return troupe.Result{Stopped: f.stops > 0}, f.err
}

func (f *fakeRun) Stop() {
	f.stops++
	if f.onStop != nil {
		f.onStop()
	}
}

func (f *fakeRun) Kill() {
	f.kills++
	if f.onKill != nil {
		f.onKill()
	}
}

func TestFollow(t *testing.T) {
	const (
		stopped = "engine: finishing the step and writing a checkpoint; press Ctrl-C again to stop at once\n"
		closed  = "engine: the output was closed; finishing the step and writing a checkpoint\n"
		hungUp  = "engine: the terminal was closed (SIGHUP); finishing the step and writing a checkpoint\n"
		hangs   = "a run that hangs"
	)
	for _, c := range []struct {
		name                   string
		signals                []os.Signal
		endsOnStop, endsOnKill bool
		atOnce                 bool // the signals come within a second
		wantErr                error
		stops, kills           int
		said                   string
	}{
		{name: "one signal", signals: []os.Signal{syscall.SIGTERM}, endsOnStop: true, stops: 1, said: stopped},
		{name: "two signals", signals: []os.Signal{syscall.SIGINT, syscall.SIGINT}, endsOnKill: true, wantErr: actors.ErrKilled, stops: 1,
			kills: 1, said: stopped},
		{name: "two signals at once, as timeout sends them", signals: []os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}, atOnce: true,
			stops: 1, said: stopped},
		{name: "a status, and a signal", signals: []os.Signal{syscall.SIGQUIT, syscall.SIGQUIT, syscall.SIGINT}, endsOnStop: true, stops: 1,
			said: event.Status{}.String() + event.Status{}.String() + stopped},
		{name: "a closed output, told often, and a signal", signals: []os.Signal{syscall.SIGPIPE, syscall.SIGPIPE, syscall.SIGHUP,
			syscall.SIGPIPE, syscall.SIGTERM},
			stops: 1, said: closed + stopped},
		{name: "a closed terminal, told twice", signals: []os.Signal{syscall.SIGHUP, syscall.SIGHUP}, stops: 1, said: hungUp},
		{name: "a closed terminal and two signals", signals: []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGINT}, endsOnKill: true,
			wantErr: actors.ErrKilled, stops: 1, kills: 1, said: hungUp + stopped},
		{name: "a signal and a closed output", signals: []os.Signal{syscall.SIGINT, syscall.SIGPIPE}, stops: 1, said: stopped},
		{name: hangs, signals: []os.Signal{syscall.SIGINT, syscall.SIGTERM}, wantErr: errKilled, stops: 1, kills: 1, said: stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			// In the synctest bubble, killGrace passes at once.
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				a := &app{out: &stream{w: &strings.Builder{}}, err: &said, now: time.Now}
				r := &fakeRun{events: make(chan troupe.Event)}
				if c.endsOnStop {
					r.onStop = func() { close(r.events) }
				}
				if c.endsOnKill {
					r.onKill = func() { r.err = actors.ErrKilled; close(r.events) }
				}
				signals := make(chan os.Signal)
				go func() {
					for _, s := range c.signals {
						if !c.atOnce {
							time.Sleep(sameSignal) // else it counts as the signal before
						}
						signals <- s
						synctest.Wait() // for its messages
					}
					if r.stops > 0 && !c.endsOnStop && !c.endsOnKill && c.name != hangs {
						close(r.events) // it has stopped
					}
				}()
				_, err := follow(r, &jsonReporter{app: a}, signals)
				if !errors.Is(err, c.wantErr) {
					t.Errorf("got error %v, want %v", err, c.wantErr)
				}
				if r.stops != c.stops || r.kills != c.kills {
					t.Errorf("%d stops and %d kills, want %d and %d", r.stops, r.kills, c.stops, c.kills)
				}
				if said.String() != c.said {
					t.Errorf("said\n%swant\n%s", said.String(), c.said)
				}
				if c.name == hangs {
					close(r.events) // end the goroutines
				}
			})
		})
	}
}

// stuck is a writer that blocks until the end.
type stuck struct{ end chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.end
	return len(p), nil
}

func TestSignalsCountWhileNothingCanBeShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stuck{make(chan struct{})}
		r := &fakeRun{events: make(chan troupe.Event, 1)}
		r.events <- troupe.WarningEvent{Text: "stuck"}
		signals := make(chan os.Signal)
		go func() {
			for range 20 { // more than notices are kept
				signals <- syscall.SIGQUIT
			}
			signals <- syscall.SIGINT
			time.Sleep(sameSignal)
			signals <- syscall.SIGINT
		}()
		if _, err := follow(r, &jsonReporter{app: &app{out: &stream{w: w}, err: w, now: time.Now}}, signals); !errors.Is(err, errKilled) {
			t.Errorf("got error %v, want %v", err, errKilled)
		}
		if r.stops != 1 || r.kills != 1 {
			t.Errorf("%d stops and %d kills, want one each", r.stops, r.kills)
		}
		close(w.end)
		close(r.events)
	})
}

func TestSignalBeforeTheRunBegins(t *testing.T) {
	var said strings.Builder
	a := &app{err: &said}
	signals := make(chan os.Signal)
	release := make(chan struct{})
	defer close(release)
	go func() {
		signals <- syscall.SIGQUIT
		signals <- syscall.SIGTERM
	}()
	_, err := start(a, notBegun, func() (*troupe.Run, error) { <-release; return nil, nil }, signals)
	if !errors.Is(err, errStopped) {
		t.Errorf("got error %v, want %v", err, errStopped)
	}
	if want := "engine: the run is being set up\nengine: stopped before training began\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}
