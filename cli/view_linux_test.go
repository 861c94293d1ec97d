package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-ml/troupe/internal/show/view"
)

// seenOn keeps what a program writes to a terminal.
type seenOn struct {
	mu   sync.Mutex
	text strings.Builder
	done chan struct{}
}

func watchTerminal(master *os.File) *seenOn {
	s := &seenOn{done: make(chan struct{})}
	go func() { // ends when no process has the terminal open
		defer close(s.done)
		buffer := make([]byte, 1<<12)
		for {
			n, err := master.Read(buffer)
			s.mu.Lock()
			s.text.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *seenOn) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until a text appears after the given offset, and returns the offset of its end.
func (s *seenOn) await(t *testing.T, after int, text string) int {
	t.Helper()
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if i := strings.Index(s.String()[after:], text); i >= 0 {
			return after + i + len(text)
		}
	}
	seen := s.String()[after:]
	t.Fatalf("no %q in the last of\n%q", text, seen[max(0, len(seen)-2000):])
	return 0
}

// onTerminal starts a program on its own terminal. It compares the terminal's settings before the start and
// after the end.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) (cmd *exec.Cmd, master, slave *os.File, seen *seenOn) {
	t.Helper()
	master, slave = openTerminal(t, columns)
	cmd = exec.Command("engine", args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = workdir(t), slave, slave, slave
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, master, slave, watchTerminal(master)
}

func modes(t *testing.T, terminal *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// TestView: the view draws the stages, its keys work, lines scroll above it, and at the end the terminal's
// settings are unchanged.
func TestView(t *testing.T) {
	_, fresh := openTerminal(t, 90)
	before := modes(t, fresh)
	cmd, master, slave, seen := onTerminal(t, 90, []string{"NO_COLOR=1"}, append(endless, "--view", "--set", "run.log_every=100000")...)
	press := func(key string) {
		t.Helper()
		if _, err := master.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	at := seen.await(t, 0, "2 stages:")
	at = seen.await(t, at, "stage 1")
	seen.await(t, 0, "q stop  p pause")
	if modes(t, slave).Lflag&unix.ICANON != 0 {
		t.Error("keys come by lines")
	}
	press("p")
	at = seen.await(t, at, "paused after step ")
	press("c")
	at = seen.await(t, at, "checkpoint runs/tiny/checkpoints/step-")
	press("s")
	at = seen.await(t, at, "ACTOR")
	press("q")
	at = seen.await(t, at, "stop after this step, with a checkpoint? y")
	press("y")
	seen.await(t, at, "stopped at step ")
	_ = cmd.Wait() // its error is the exit status
	if got := cmd.ProcessState.ExitCode(); got != exitTryAgain {
		t.Errorf("exit status %d, want %d", got, exitTryAgain)
	}
	if after := modes(t, slave); after != before {
		t.Errorf("the terminal is left as %+v, it was %+v", after, before)
	}
	text := seen.String()
	if strings.LastIndex(text, "\x1b[?25h") < strings.LastIndex(text, "\x1b[?25l") {
		t.Error("the cursor stays hidden")
	}
	if colour := regexp.MustCompile("\x1b\\[[0-9;]*3[0-7]m").FindString(text); colour != "" {
		t.Errorf("there is a colour in spite of NO_COLOR: %q", colour)
	}
}

// TestViewIsSuspended: Ctrl-Z restores the terminal, and the view returns when the program continues.
func TestViewIsSuspended(t *testing.T) {
	cmd, master, slave, seen := onTerminal(t, 90, nil, append(endless, "--view", "--set", "run.log_every=100000")...)
	seen.await(t, 0, "2 stages:")
	if _, err := master.Write([]byte{'Z' & 0x1f}); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it was not suspended: %v, %v", status, err)
	}
	if modes(t, slave).Lflag&unix.ICANON == 0 {
		t.Error("who takes over gets a terminal in raw mode")
	}
	at := len(seen.String())
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	seen.await(t, at, "2 stages:")
	if modes(t, slave).Lflag&unix.ICANON != 0 {
		t.Error("it continues without keys")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	seen.await(t, at, "stopped at step ")
	_ = cmd.Wait() // its error is the exit status
	if got := cmd.ProcessState.ExitCode(); got != exitTryAgain || modes(t, slave).Lflag&unix.ICANON == 0 {
		t.Errorf("exit status %d, want %d, and a terminal as it was", got, exitTryAgain)
	}
}

// TestViewGoesWithItsTerminal: a closed terminal stops the run with a checkpoint.
func TestViewGoesWithItsTerminal(t *testing.T) {
	cmd, master, slave, seen := onTerminal(t, 90, nil, append(endless, "--view", "--set", "run.log_every=100000")...)
	seen.await(t, 0, "2 stages:")
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	if err := master.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its error is the exit status
	if got := cmd.ProcessState.ExitCode(); got != exitTryAgain {
		t.Fatalf("%v, want exit status %d", cmd.ProcessState, exitTryAgain)
	}
	goesOn(t, cmd.Dir)
}

// TestViewIsPlain: if a view is not possible, plain lines are printed, and one line says why.
func TestViewIsPlain(t *testing.T) {
	for _, c := range []struct {
		name    string
		columns uint16
		env     []string
		says    string
	}{
		{"dumb", 90, []string{"TERM=dumb"}, "the terminal can't redraw lines (TERM=dumb)"},
		{"narrow", 30, nil, "the terminal has 30 columns and 24 rows; a view needs 40 and 12"},
	} {
		cmd, _, _, seen := onTerminal(t, c.columns, c.env, "run", "tiny.toml", "--view")
		_ = cmd.Wait() // checked below
		seen.await(t, 0, "done: step 6/6")
		if !strings.Contains(seen.String(), c.says) || cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("%s: %v, and no %q in\n%s", c.name, cmd.ProcessState, c.says, seen)
		}
	}
	cmd := exec.Command("engine", "run", "tiny.toml", "--view")
	cmd.Dir = workdir(t)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no view, plain lines instead: the output is not a terminal") ||
		strings.Contains(string(out), "\x1b") {
		t.Errorf("%v\n%q", err, out)
	}
}

// TestViewKeepsTheOrderOfLines: the library runs commands concurrently, but lines stay in order.
func TestViewKeepsTheOrderOfLines(t *testing.T) {
	cmd, _, _, seen := onTerminal(t, 200, nil, "run", "tiny.toml", "--view", "--set", "run.steps=300", "--set", "run.eval_every=0", "--set",
		"run.checkpoint_every=0", "--set", "run.log_every=1")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	seen.await(t, 0, "done: step 300/300")
	want := 1
	for _, found := range regexp.MustCompile(`step +([0-9]+)/300  loss`).FindAllStringSubmatch(seen.String(), -1) {
		if got, _ := strconv.Atoi(found[1]); got != want {
			t.Fatalf("step %d where %d should be", got, want)
		}
		want++
	}
	if want != 301 {
		t.Errorf("%d lines of 300", want-1)
	}
}

// TestViewAsks: the answer no continues the run, and the second q asks whether to stop at once.
func TestViewAsks(t *testing.T) {
	m := &viewModel{view: view.New(view.Options{}), keys: true}
	if cmd := m.key("q"); cmd != nil || !strings.Contains(m.question, "with a checkpoint") {
		t.Errorf("it asks %q", m.question)
	}
	if cmd := m.key("n"); cmd != nil || m.question != "" || m.stopping {
		t.Error("it does not take no for an answer")
	}
	m.key("q")
	if cmd := m.key("y"); cmd == nil || !m.stopping {
		t.Error("it does not stop")
	}
	if m.key("q"); !strings.Contains(m.question, "at once") {
		t.Errorf("it asks %q", m.question)
	}
	m = &viewModel{view: view.New(view.Options{}), leaves: true}
	if m.key("q"); !strings.Contains(m.question, "The run continues") {
		t.Errorf("with --view of engine follow it asks %q", m.question)
	}
}
