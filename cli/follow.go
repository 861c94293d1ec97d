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

// training is what following a run takes; *troupe.Run is one.
type training interface {
	Info() troupe.Info
	Events() <-chan troupe.Event
	Status() event.Status
	Stop()
	Kill()
	Wait() (troupe.Result, error)
}

// follow shows what happens in a run until it has ended, and passes signals on
// to it.
func follow(r training, show reporter, signals <-chan os.Signal) (troupe.Result, error) {
	// Showing may wait for a terminal or a pipe; signals may not.
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

// showAll shows events until they end, and notices.
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

// detachable is a run that goes on where nobody follows it.
type detachable interface{ Detach() }

// killGrace is how long a run may take to end after it was killed.
const killGrace = 2 * time.Second

// errKilled: the run did not even end when it was killed.
var errKilled = errors.New("killed; the run goes on from its last checkpoint when it is started again")

// runSignals are those that a run minds. With nohup it outlives its terminal.
func runSignals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// mindPipes makes signals of the pipes of the output and the messages whose readers have
// ended. The system's own SIGPIPE doesn't say which pipe or connection it is of: a
// worker's that has died is no reason to stop.
func (a *app) mindPipes(signals chan<- os.Signal) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // which ends the program otherwise
	go func() {                                             // ends with the program
		for range a.broken {
			signals <- syscall.SIGPIPE
		}
	}()
}

// outlet tells of a pipe whose reader has ended.
type outlet struct {
	io.Writer
	broken chan<- struct{}
}

func (o outlet) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case o.broken <- struct{}{}:
		default: // it is told already
		}
	}
	return n, err
}

// supervise acts on signals until the run has ended: the first asks it to stop, the
// second that a person or a system sends kills it. A run that doesn't end then is left
// behind.
func supervise(r training, signals <-chan os.Signal, notices chan<- string, ended <-chan struct{}) error {
	stopping, asked := false, false
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
				// They come several times for one reason: for each line that nobody reads, and
				// from a terminal's end and the shell's.
				switch {
				case stopping:
				case s == syscall.SIGPIPE:
					stop("the output was closed; finishing the step and writing a checkpoint")
				default:
					stop("the terminal was closed (SIGHUP); finishing the step and writing a checkpoint")
				}
			case !asked:
				asked = true
				stop("finishing the step and writing a checkpoint; again to stop at once")
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

// notify doesn't wait: when nothing can be shown, signals still count.
func notify(notices chan<- string, text string) {
	select {
	case notices <- text:
	default:
	}
}
