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

// errStopped means that a signal, such as SIGPIPE, ended the run early, and that a message has said so.
var errStopped = errors.New("stopped by a signal")

// exitCodes is the help topic.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What each exit status and each signal means",
		Long: `The exit status of engine:

   0  The command succeeded.
   1  The command failed. Examples: a stage failed; the disk is full; a checkpoint is
      damaged (engine ckpt verify); the model computes NaN (engine eval, generate); the
      output can't be written; a second signal stopped the run at once; the coordinator
      rejected the token or the request; the coordinator has no such run.
   2  The command line has a mistake, such as an unknown flag.
  75  Try again later with the same command. Causes:
      - A signal or a closed output stopped the run. It wrote a checkpoint, and the
        same command resumes from it.
      - Another process uses the output folder.
      - A file can't be read at the moment: out of memory, too many open files, or a
        disk error.
      - The workers that the run needs have not joined.
      - The coordinator can't be reached.
      - The command stopped following a coordinator's run; the run itself continues.
  78  The config, the data, the checkpoint to start from or the output folder can't be
      used. A checkpoint may be incomplete, unreadable, or written by a newer version.
      Nothing was changed.

Signals during engine run:

  SIGINT, SIGTERM  Finish the step, write a checkpoint, exit with 75. A second signal, a
                   second later or more, stops the run at once with exit status 1; the
                   steps since the last checkpoint are lost.
  SIGHUP, SIGPIPE  The terminal was closed, or the reader of the output exited, as in
                   engine run … | head. The same as the first SIGINT; further ones have
                   no effect. Under nohup, SIGHUP is ignored.
  SIGQUIT          Print what every actor does and waits for. The run continues.

With engine run --cluster, SIGINT and SIGTERM act the same. SIGHUP and SIGPIPE only stop
following: the run continues.

Other commands end on SIGHUP and SIGPIPE as most programs do.

Set the environment variable ENGINE_DEBUG to print the stack of an internal error.`,
	}
}

// exitCode returns the exit status for an error.
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

// passes reports whether an error from a coordinator may be temporary.
func passes(err error) bool {
	for _, e := range []error{cluster.ErrLost, cluster.ErrGone, cluster.ErrClosing, cluster.ErrSlow, cluster.ErrTryAgain} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain writes an error for people: each error joined in it on its own line. It indents the further
// lines of an error, so that text from a file does not look like another message.
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

// parts returns the errors that are joined in err, if err's text adds nothing to theirs.
func parts(err error) []error {
	var inner []error
	switch e := any(err).(type) { // the wrapped errors
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

// message returns an error's text, by default without the stack of a panic: most readers have no use for it.
func message(err error, withStack bool) string {
	text := err.Error()
	var p *actors.Panic
	if errors.As(err, &p) && !withStack {
		text = strings.Replace(text, p.Error(), fmt.Sprintf("internal error: %v (set ENGINE_DEBUG=1 to see the stack)", p.Value), 1)
	}
	return text
}

// say writes a message on one line of the error stream. It ignores write errors: there is no other place to
// report them.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "engine: %s\n", words.OneLine(fmt.Sprintf(format, args...)))
}
