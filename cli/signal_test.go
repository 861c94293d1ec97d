package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is an engine in its own process. Its output goes to a file; its messages can be read as they
// appear.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  string // the file
	errs *bufio.Reader
	said strings.Builder // the text read from errs
}

func startEngine(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startProgram(t, dir, "engine", args...)
}

func startProgram(t *testing.T, dir, program string, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals to send")
	}
	out, err := os.CreateTemp(dir, "out")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	p := &process{t: t, cmd: exec.Command(program, args...), out: out.Name()}
	p.cmd.Dir, p.cmd.Stdout = dir, out
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.errs = bufio.NewReader(io.TeeReader(pipe, &p.said))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it has ended, unless the test failed
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// prints waits until the output matches a pattern.
func (p *process) prints(pattern string) {
	p.t.Helper()
	if err := await(p.out, pattern); err != nil {
		p.t.Fatal(err)
	}
}

// says reads messages up to a line that starts with a text.
func (p *process) says(text string) {
	p.t.Helper()
	for {
		line, err := p.errs.ReadString('\n')
		if strings.HasPrefix(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("%q is not said:\n%s", text, p.said.String())
		}
	}
}

// ends waits for the end of the process and compares its exit status.
func (p *process) ends(want int) {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.errs)
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Fatalf("the exit status is %d, want %d\n%s", got, want, p.said.String())
	}
}

func TestStoppedRunGoesOn(t *testing.T) {
	dir := workdir(t)
	p := startEngine(t, dir, "run", "tiny.toml", "--set", "run.steps=1000000", "--sample", "10")
	p.prints(`(?m)^step +2/`)
	p.signal(syscall.SIGQUIT)
	p.says("ACTOR ")
	p.says("root: ")
	p.signal(syscall.SIGTERM)
	p.says("engine: finishing the step")
	p.ends(exitTryAgain)
	p.prints(`(?m)^stopped at step .* checkpoint runs/tiny/checkpoints/step-.*; the same command resumes from there\n\z`)

	again := startEngine(t, dir, "run", "tiny.toml", "--set", "run.steps=1000000")
	again.prints(`(?m)^resumed at step [0-9]+$`)
	again.signal(syscall.SIGINT)
	again.ends(exitTryAgain)
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	dir := workdir(t)
	// One step takes many seconds.
	p := startEngine(t, dir, "run", "tiny.toml", "--set", "model.hidden=256", "--set", "model.context=32", "--set", "batch.sequences=8192",
		"--set", "batch.microbatch=64")
	p.prints(`(?m)^step 0/6 `)
	p.signal(syscall.SIGINT)
	p.says("engine: finishing the step")
	time.Sleep(sameSignal) // an earlier one counts as the first
	p.signal(syscall.SIGINT)
	p.ends(exitFailed)
	if !strings.Contains(p.said.String(), "killed") {
		t.Errorf("it does not say that it was killed:\n%s", p.said.String())
	}
}
