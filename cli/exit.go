package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/cluster/discovery"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// The exit status; exitCodes documents it.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitTryAgain = 75 // EX_TEMPFAIL of sysexits.h
	exitConfig   = 78 // EX_CONFIG
)

// errStopped: a signal, SIGPIPE among them, ended the run early, and it has said so.
var errStopped = errors.New("stopped by a signal")

// exitCodes is the help topic.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit status means",
		Long: `The exit status of engine:

   0  done
   1  failed: a stage failed, the disk is full, a checkpoint is damaged (ckpt
      verify), a model computes NaN (eval, generate), the output can't be
      written, or a second signal ended the run at once; a coordinator refuses
      the token or what was asked, or knows no such run
   2  the command line is not understood
  75  try again: a signal, or a closed output, stopped the run, which wrote a
      checkpoint and goes on from it when the same command is given; another
      process is using the output folder; or the system could not read a file at
      the moment, for want of memory or of open files, or for an error of the disk;
      the workers that a run needs are not there; the coordinator can't be reached;
      who followed a run of a coordinator has left it, and it goes on
  78  the configuration, the data, a checkpoint to start from or the output
      folder can't be used as they are: also a checkpoint that is incomplete, may
      not be read or is of a newer program; nothing was changed

Signals during engine run:

  SIGINT, SIGTERM  finish the step, write a checkpoint, exit 75; a second one
                   ends the run at once, with exit 1: what was trained since the
                   last checkpoint is lost
  SIGHUP, SIGPIPE  the same, but further ones change nothing: the terminal was
                   closed, or nobody reads the output or the messages any more
                   (engine run … | head); with nohup SIGHUP is ignored
  SIGQUIT          print what every actor does and waits for, and go on

With engine run --cluster SIGINT and SIGTERM do the same, but SIGHUP and SIGPIPE only
end the following: the run goes on.

Other commands end by SIGHUP and SIGPIPE as any program does.

With ENGINE_DEBUG set to anything, an internal error comes with its stack.`,
	}
}

// exitCode is the exit status that stands for an error.
func exitCode(err error) int {
	var (
		usage *usageError
		key   *config.Error
		setup *troupe.SetupError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errStopped), checkpoint.TryAgain(err), errors.Is(err, troupe.ErrNoWorkers), passes(err):
		return exitTryAgain
	case errors.As(err, &key):
		return exitConfig
	case errors.Is(err, troupe.ErrOptions), errors.Is(err, discovery.ErrAddress), errors.Is(err, cpu.ErrKernels):
		return exitUsage
	case errors.As(err, &setup):
		return exitConfig
	}
	return exitFailed
}

// passes reports whether an error of a coordinator is one that may pass.
func passes(err error) bool {
	for _, e := range []error{cluster.ErrLost, cluster.ErrGone, cluster.ErrClosing, cluster.ErrSlow, cluster.ErrTryAgain} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain writes an error for a person, each that is joined in it on a line. Where one
// has further lines they are indented: what a file's text brings in is not taken for
// another message.
func explain(w io.Writer, err error) {
	if err == nil || errors.Is(err, errStopped) {
		return
	}
	for _, err := range parts(err) {
		indent := ""
		for line := range strings.Lines(message(err, os.Getenv("ENGINE_DEBUG") != "")) {
			if line = strings.TrimRight(line, "\n"); line != "" {
				say(w, "%s%s", indent, line)
				indent = "  "
			}
		}
	}
}

// parts are the errors that are joined in one, as far as its text is no more than
// theirs.
func parts(err error) []error {
	var inner []error
	switch e := any(err).(type) { // what is wrapped comes next
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	if inner == nil || inner[0] == nil || errors.Join(inner...).Error() != err.Error() {
		return []error{err}
	}
	var all []error
	for _, err := range inner {
		if err != nil {
			all = append(all, parts(err)...)
		}
	}
	return all
}

// message is an error's text. The stack of a panic says nothing to most people.
func message(err error, withStack bool) string {
	text := err.Error()
	var p *actors.Panic
	if errors.As(err, &p) && !withStack {
		text = strings.Replace(text, p.Error(), fmt.Sprintf("internal error: %v (ENGINE_DEBUG=1 shows where)", p.Value), 1)
	}
	return text
}

// say writes a message to the error stream, on one line. Where that is closed there is
// nobody to tell.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "engine: %s\n", words.OneLine(fmt.Sprintf(format, args...)))
}
