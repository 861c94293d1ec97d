//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// canView says whether this system has what a view needs.
const canView = true

// signalSelf sends a signal to this program, as a terminal does that reads no keys.
func signalSelf(s os.Signal) tea.Cmd {
	return func() tea.Msg {
		_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		return nil
	}
}

// suspendGroup does what a terminal does at Ctrl-Z.
func suspendGroup() tea.Msg {
	_ = syscall.Kill(0, syscall.SIGTSTP)
	return nil
}

// inForeground reports whether this program may change its terminal.
func inForeground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // whoever has no job control is in front
}

// mindSuspension gives the terminal back before the program is suspended, and takes it again
// when it goes on in the foreground.
func mindSuspension(ctx context.Context, p *tea.Program) {
	suspend := make(chan os.Signal, 1)
	signal.Notify(suspend, syscall.SIGTSTP)
	defer signal.Stop(suspend)
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	for {
		select {
		case <-suspend:
		case <-ctx.Done():
			return
		}
		// The frame is taken away: whatever is written meanwhile, the next one begins where the
		// cursor is then.
		p.Send(hideMsg(true))
		time.Sleep(hideTime)
		_ = p.ReleaseTerminal()
		// bubbletea (v2.1.1 too) stops its ticker in the goroutine that it tells to end: one that
		// gets there only after the terminal is taken again stops the new drawing.
		time.Sleep(hideTime)
		select {
		case <-goOn: // an earlier one
		default:
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-goOn // another thread may have taken the stop: this one may run on for a moment
		for !inForeground(os.Stdout) {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
		_ = p.RestoreTerminal()
		p.Send(hideMsg(false))
	}
}
