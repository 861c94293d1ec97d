package cli

import (
	"os"
	"syscall"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// awaitTurn waits while a followed run is in the coordinator's queue. Ctrl-C removes a run of the own command from the queue;
// if the terminal or the output is closed, the run stays there. The error is nil when the run has begun.
func (a *app) awaitTurn(f *cluster.Followed, own bool, signals <-chan os.Signal) error {
	if f.Position == 0 {
		return nil
	}
	hint := "Ctrl-C stops following; the run stays in the queue"
	if own {
		hint = "Ctrl-C removes the run from the queue; if the terminal is closed, the run stays there"
	}
	say(a.err, "%s", hint)
	events := f.Events()
	for {
		select {
		case <-f.Begun():
			if f.Info().Name != "" {
				return nil
			}
			res, err := f.Wait()
			if err == nil && res.Stopped {
				say(a.err, "run %s was removed from the queue", f.ID)
				err = errStopped
			}
			return err
		case e, more := <-events: // until the run begins, warnings about the connection
			if !more {
				events = nil
			} else if m, ok := event.MarkOf(e, 0); ok {
				say(a.err, "%s", m.Text)
			}
		case s := <-signals:
			switch s {
			case syscall.SIGQUIT:
				say(a.err, "the run is in the queue; engine ps shows its position")
			case syscall.SIGPIPE, syscall.SIGHUP:
				f.Detach()
				_, err := f.Wait()
				return err
			default:
				f.Stop()
			}
		}
	}
}
