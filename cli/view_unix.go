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

// canView says whether this system can draw views.
const canView = true

// signalSelf sends a signal to this program, as the terminal would in its normal mode.
func signalSelf(s os.Signal) tea.Cmd {
	return func() tea.Msg {
		_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		return nil
	}
}

// suspendGroup suspends the process group, as the terminal does for Ctrl-Z.
func suspendGroup() tea.Msg {
	_ = syscall.Kill(0, syscall.SIGTSTP)
	return nil
}

// inForeground reports whether this program may write to its terminal.
func inForeground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // an error means no job control: always in the foreground
}

// mindSuspension releases the terminal before the program is suspended, and restores the view when the
// program continues in the foreground.
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
		// Hide the frame, so that the next one starts at the cursor, wherever other programs
		// leave it.
		p.Send(hideMsg(true))
		time.Sleep(hideTime)
		_ = p.ReleaseTerminal()
		// bubbletea (also v2.1.1) stops its ticker in the goroutine that it tells to end. If that
		// happens only after RestoreTerminal, it stops the new drawing.
		time.Sleep(hideTime)
		select {
		case <-goOn: // drop an earlier signal
		default:
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-goOn // another thread may have received the stop, so this one may run for a moment
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
