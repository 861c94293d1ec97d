package cli

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// training is a run that can be shown and stopped; *troupe.Run is one.
type training interface {
	Info() troupe.Info
	Events() <-chan troupe.Event
	Status() event.Status
	Stop()
	Kill()
	Wait() (troupe.Result, error)
}

// follow shows a run's events until the run has ended, and handles signals.
func follow(r training, show reporter, signals <-chan os.Signal) (troupe.Result, error) {
	// Output may block on a terminal or a pipe. Signals must not wait for it.
	notices := make(chan string, 8)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		show.begin(r.Info())
		showAll(r.Events(), notices, show)
	}()
	if err := supervise(r, signals, notices, shown); err != nil {
		return troupe.Result{}, err
	}
	return r.Wait()
}

// showAll shows events and notices until there are no more events.
func showAll(events <-chan troupe.Event, notices <-chan string, show reporter) {
	defer show.close()
	for events != nil || len(notices) > 0 {
		select {
		case e, more := <-events:
			if !more {
				events = nil
				continue
			}
			show.event(e)
		case n := <-notices:
			show.notice(n)
		}
	}
}

// detachable is a run that continues when nobody follows it.
type detachable interface{ Detach() }

// killGrace is how long a killed run may take to end.
const killGrace = 2 * time.Second

// sameSignal is how long after the first signal a second one counts as the same request. GNU timeout sends a signal to the program, and
// then to its group.
const sameSignal = time.Second

// errKilled means that the run was killed and did not end within killGrace.
var errKilled = errors.New("killed; the same command resumes from the last checkpoint")

// runSignals lists the signals that a run handles. Under nohup it ignores SIGHUP.
func runSignals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// mindPipes sends SIGPIPE to signals when a reader of the output or of the messages has closed its pipe.
// The system's own SIGPIPE doesn't say which pipe or connection it is about, and a closed connection to a
// worker is no reason to stop.
func (a *app) mindPipes(signals chan<- os.Signal) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // by default it ends the program
	go func() {                                             // ends with the program
		for range a.broken {
			signals <- syscall.SIGPIPE
		}
	}()
}

// outlet reports when the reader of a pipe has closed it.
type outlet struct {
	io.Writer
	broken chan<- struct{}
}

func (o outlet) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case o.broken <- struct{}{}:
		default: // reported already
		}
	}
	return n, err
}

// supervise handles signals until the run has ended. The first one stops the run; a second one from a
// person or from the system kills it. If the run does not end then, supervise returns errKilled.
func supervise(r training, signals <-chan os.Signal, notices chan<- string, ended <-chan struct{}) error {
	var first time.Time // when a person or the system asked to stop; zero: nobody has
	stopping := false
	remote, detaches := r.(detachable)
	stop := func(notice string) {
		notify(notices, "engine: "+notice)
		if !stopping {
			stopping = true
			r.Stop()
		}
	}
	for {
		select {
		case <-ended:
			return nil
		case s := <-signals:
			switch {
			case s == syscall.SIGQUIT:
				notify(notices, r.Status().String())
			case (s == syscall.SIGPIPE || s == syscall.SIGHUP) && detaches:
				remote.Detach()
			case s == syscall.SIGPIPE || s == syscall.SIGHUP:
				// These signals repeat: one for each line that nobody reads, and one each from the
				// terminal and from the shell.
				switch {
				case stopping:
				case s == syscall.SIGPIPE:
					stop("the output was closed; finishing the step and writing a checkpoint")
				default:
					stop("the terminal was closed (SIGHUP); finishing the step and writing a checkpoint")
				}
			case first.IsZero():
				first = time.Now()
				stop("finishing the step and writing a checkpoint; press Ctrl-C again to stop at once")
			case time.Since(first) < sameSignal: // one request, sent twice
			default:
				r.Kill()
				select {
				case <-ended:
					return nil
				case <-time.After(killGrace):
					return errKilled
				}
			}
		}
	}
}

// notify doesn't wait: signals must be handled even if the output blocks.
func notify(notices chan<- string, text string) {
	select {
	case notices <- text:
	default:
	}
}
