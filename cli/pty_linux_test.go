package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal of n columns.
func openTerminal(t *testing.T, columns uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

func TestOnATerminal(t *testing.T) {
	const columns = 70
	master, slave := openTerminal(t, columns)
	cmd := exec.Command("engine", "run", "tiny.toml", "--sample", "100")
	cmd.Dir, cmd.Stdout, cmd.Stderr = workdir(t), slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	seen, _ := io.ReadAll(master) // ends with an error when no process has the terminal open
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, seen)
	}
	screen, sample, found := strings.Cut(string(seen), "\nsample (100 tokens")
	if !found {
		t.Fatalf("no sample in\n%s", seen)
	}
	bars := strings.Split(screen, "\r\x1b[K")
	full := 0
	for _, bar := range bars {
		bar, _, _ = strings.Cut(bar, "\r\n")
		if !strings.Contains(bar, "/6 [") {
			continue
		}
		if len(bar) >= columns {
			t.Errorf("a bar of %d columns: %q", len(bar), bar)
		}
		if strings.HasPrefix(bar, "6/6 [====") {
			full++
		}
	}
	if full == 0 {
		t.Errorf("no full bar in\n%q", screen)
	}
	if last := bars[len(bars)-1]; !strings.HasPrefix(last, "done: step 6/6 ") {
		t.Errorf("the bar is not cleared before the end: %q", last)
	}
	if strings.ContainsFunc(sample, func(r rune) bool { return r < ' ' && r != '\r' && r != '\n' && r != '\t' }) {
		t.Errorf("the sample can steer the terminal: %q", sample)
	}
}

// TestTerminalCloses: a run stops with a checkpoint when its terminal is closed.
func TestTerminalCloses(t *testing.T) {
	master, slave := openTerminal(t, 70)
	dir := workdir(t)
	cmd := exec.Command("engine", endless...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	seen, buffer := "", make([]byte, 1<<12)
	for !strings.Contains(seen, "/1000000 [") {
		n, err := master.Read(buffer)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buffer[:n])
	}
	if err := master.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its error is the exit status
	if got := cmd.ProcessState.ExitCode(); got != exitTryAgain {
		t.Fatalf("%v, want exit status %d", cmd.ProcessState, exitTryAgain)
	}
	goesOn(t, dir)
}
