package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

func TestExitCode(t *testing.T) {
	key := &config.Error{Key: "run.steps", Msg: "wrong"}
	setup := func(err error) error { return &troupe.SetupError{Err: err} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{&actors.ActorError{Actor: "stage 1", Step: 5, Err: fs.ErrPermission}, 1},
		{fmt.Errorf("checkpoint of step 5: %w", checkpoint.ErrNoSpace), 1},
		{actors.ErrKilled, 1},
		{errKilled, 1},
		{usagef("what?"), 2},
		{fmt.Errorf("%w: -1 tokens", troupe.ErrOptions), 2},
		{setup(fmt.Errorf("%w: abacus", cpu.ErrKernels)), 2},
		{errStopped, 75},
		{fmt.Errorf("%w: runs/run", checkpoint.ErrLocked), 75},
		{fmt.Errorf("%w: %w", checkpoint.ErrUnreadable, &fs.PathError{Op: "open", Path: "config.json", Err: syscall.EMFILE}), 75},
		{setup(fmt.Errorf("%w: %w", checkpoint.ErrUnreadable, syscall.EIO)), 75},
		{fmt.Errorf("%w: none has joined", troupe.ErrNoWorkers), 75},
		{fmt.Errorf("%w: connection refused", cluster.ErrLost), 75},
		{cluster.ErrGone, 75},
		{cluster.ErrClosing, 75},
		{cluster.ErrTryAgain, 75},
		{fmt.Errorf("%w: a viewer", cluster.ErrForbidden), 1},
		{fmt.Errorf("%w: x", cluster.ErrNoRun), 1},
		{cluster.ErrRefused, 1},
		{setup(fmt.Errorf("%w: %w", checkpoint.ErrUnreadable, fs.ErrPermission)), 78},
		{setup(fmt.Errorf("%w: a link", checkpoint.ErrUnreadable)), 78},
		{setup(fmt.Errorf("%w: version 2", checkpoint.ErrVersion)), 78},
		{setup(errors.New("no text")), 78},
		{config.Errors{key}, 78},
		{key, 78},
		{setup((&config.Config{}).Errorf("device.kernels", "%w: abacus", cpu.ErrKernels)), 78},
		{setup(&actors.ActorError{Actor: "loader", Err: errors.New("token 300")}), 78},
		{errors.Join(setup(key), errors.New("while closing")), 78},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

func setupOf(err error) error { return &troupe.SetupError{Err: err} }

func TestExplain(t *testing.T) {
	cause := &actors.ActorError{Actor: "stage 1", Step: 5, Err: &actors.Panic{Value: "index out of range",
		Stack: []byte("goroutine 7\nstage.go:1\n")}}
	for _, c := range []struct {
		name  string
		err   error
		debug string
		want  string
	}{
		{"nothing", nil, "", ""},
		{"said already", errStopped, "", ""},
		{"one line", errors.New("no"), "", "engine: no\n"},
		{"several", errors.Join(errors.New("a"), errors.New("b\n\nc\n")), "", "engine: a\nengine: b\nengine:   c\n"},
		{"joined within", setupOf(errors.Join(errors.New("a"), errors.Join(config.Errors{{Msg: "b"}, {Msg: "c"}}))), "",
			"engine: a\nengine: default: b\nengine: default: c\n"},
		{"a wrapped join", fmt.Errorf("x: %w", errors.Join(errors.New("a"), errors.New("b"))), "", "engine: x: a\nengine:   b\n"},
		{"forged", fmt.Errorf("%w: no\nengine: done\r\x1b[2J\u009b\u202e", fs.ErrNotExist), "",
			"engine: file does not exist: no\nengine:   engine: done\uFFFD\uFFFD[2J\uFFFD\uFFFD\n"},
		{"panic", errors.Join(cause, errors.New("the last checkpoint is x")), "",
			"engine: stage 1 failed in step 5: internal error: index out of range (set ENGINE_DEBUG=1 to see the stack)\nengine: the last checkpoint is x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("ENGINE_DEBUG", c.debug)
			var b strings.Builder
			explain(&b, c.err)
			if b.String() != c.want {
				t.Errorf("got\n%swant\n%s", b.String(), c.want)
			}
		})
	}
	t.Setenv("ENGINE_DEBUG", "1")
	var b strings.Builder
	explain(&b, cause)
	if !strings.Contains(b.String(), "\nengine:   stage.go:1\n") {
		t.Errorf("with ENGINE_DEBUG there is no stack in\n%s", b.String())
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	var errs strings.Builder
	if got := run([]string{"version"}, brokenPipe{}, &errs); got != exitFailed {
		t.Errorf("the exit status is %d, want %d", got, exitFailed)
	}
	if want := "engine: write the output: nobody reads\n"; errs.String() != want {
		t.Errorf("got %q, want %q", errs.String(), want)
	}
}
