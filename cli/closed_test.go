package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
)

// endless are the flags of a run that doesn't end by itself, and whose numbers don't depend on its length. It
// writes checkpoints only on request.
var endless = []string{"run", "tiny.toml", "--set", "run.steps=1000000", "--set", "run.checkpoint_every=0", "--set", "run.eval_every=0",
	"--set", "run.log_every=1", "--set", "optimizer.decay=constant"}

// TestClosedOutput: a run stops with a checkpoint if the reader of its output or of its messages exits, and
// says so on the other stream.
func TestClosedOutput(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	const said = "engine: the output was closed; finishing the step and writing a checkpoint\n"
	diverging := []string{"--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e6", "--set", "optimizer.clip_norm=0", "--set",
		"optimizer.warmup_steps=0", "--set", "run.max_skipped_steps=0"}
	for _, c := range []struct {
		name   string
		flags  []string
		errors bool // the reader of the messages exits, not that of the output
	}{
		{name: "lines"},
		{name: "json", flags: []string{"--json"}},
		{name: "messages", flags: append([]string{"--quiet"}, diverging...), errors: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := workdir(t)
			cmd := exec.Command("engine", append(endless, c.flags...)...)
			cmd.Dir = dir
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var rest bytes.Buffer
			if cmd.Stdout, cmd.Stderr = io.Writer(w), io.Writer(&rest); c.errors {
				cmd.Stdout, cmd.Stderr = &rest, w
			}
			if err := errors.Join(cmd.Start(), w.Close()); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(r)
			for range 3 {
				if !lines.Scan() {
					t.Fatalf("it ended early: %v\n%s", lines.Err(), rest.String())
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its error is the exit status
			if got := cmd.ProcessState.ExitCode(); got != exitTryAgain {
				t.Fatalf("%v, want exit status %d\n%s", cmd.ProcessState, exitTryAgain, rest.String())
			}
			if !c.errors && rest.String() != said {
				t.Errorf("it said %q, want %q", rest.String(), said)
			}
			goesOn(t, dir, c.flags...)
		})
	}
}

// goesOn makes sure that a stopped run has a checkpoint, and that some steps after resuming it is
// bit-identical to a run that was never stopped.
func goesOn(t *testing.T, dir string, flags ...string) {
	t.Helper()
	step := lastStep(t, dir)
	to := []string{"--set", fmt.Sprintf("run.steps=%d", step+3)}
	train := func(dir string) string {
		cmd := exec.Command("engine", append(append(append([]string{}, endless...), flags...), to...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := lastStep(t, dir); got != step+3 {
			t.Fatalf("it ended at step %d, want %d\n%s", got, step+3, out)
		}
		return string(out)
	}
	whole := workdir(t)
	train(whole)
	train(dir)
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		path := filepath.Join("runs/tiny", checkpoint.StoreName, fmt.Sprintf("step-%08d", step+3), name)
		want, err := os.ReadFile(filepath.Join(whole, path))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not that of a run that was never stopped at step %d (%v)", path, step, err)
		}
	}
}

// lastStep returns the step of the newest checkpoint.
func lastStep(t *testing.T, dir string) int {
	t.Helper()
	all, err := listCheckpoints(filepath.Join(dir, "runs/tiny"))
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1].Step
}

func TestHangUp(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // else the run inherits that this test ignores it, under nohup
	t.Cleanup(func() { signal.Stop(heard) })
	dir := workdir(t)
	p := startEngine(t, dir, endless...)
	p.prints(`(?m)^step +2/`)
	p.signal(syscall.SIGHUP)
	p.says("engine: the terminal was closed (SIGHUP); finishing the step and writing a checkpoint")
	p.ends(exitTryAgain)
	goesOn(t, dir)
}

// TestNohup: under nohup a run outlives its terminal.
func TestNohup(t *testing.T) {
	dir := workdir(t)
	p := startProgram(t, dir, "sh", append([]string{"-c", `trap "" HUP; exec engine "$@"`, "sh"}, endless...)...)
	p.prints(`(?m)^step +2/`)
	p.signal(syscall.SIGHUP)
	now, err := os.ReadFile(p.out)
	if err != nil {
		t.Fatal(err)
	}
	p.prints(fmt.Sprintf(`(?m)^step +%d/`, strings.Count(string(now), "\nstep ")+100)) // it continues
	p.signal(syscall.SIGTERM)
	p.ends(exitTryAgain)
	if said := p.said.String(); strings.Contains(said, "terminal") {
		t.Errorf("it minds the end of its terminal: %s", said)
	}
}
