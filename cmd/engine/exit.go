package main

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
	"github.com/troupe-ml/troupe/config"
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

// errStopped: a signal ended the run early, and it has said so.
var errStopped = errors.New("stopped by a signal")

// exitCodes is the help topic.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit status means",
		Long: `The exit status of engine:

   0  done
   1  failed: a stage failed, the disk is full, a checkpoint is damaged (ckpt
      verify), or a second signal ended the run at once
   2  the command line is not understood
  75  try again: a signal stopped the run, which wrote a checkpoint and goes on
      from it when the same command is given; or another process is using the
      output folder
  78  the configuration, the data, a checkpoint to start from or the output
      folder can't be used as they are; nothing was changed

Signals during engine run:

  SIGINT, SIGTERM  finish the step, write a checkpoint, exit 75; a second one
                   ends the run at once, with exit 1: what was trained since the
                   last checkpoint is lost
  SIGQUIT          print what every actor does and waits for, and go on

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
	case errors.Is(err, errStopped), errors.Is(err, checkpoint.ErrLocked):
		return exitTryAgain
	case errors.As(err, &key):
		return exitConfig
	case errors.Is(err, troupe.ErrOptions), errors.Is(err, cpu.ErrKernels):
		return exitUsage
	case errors.As(err, &setup):
		return exitConfig
	}
	return exitFailed
}

// explain writes an error for a person, a line for each of its lines.
func explain(w io.Writer, err error) {
	if err == nil || errors.Is(err, errStopped) {
		return
	}
	for line := range strings.Lines(message(err, os.Getenv("ENGINE_DEBUG") != "")) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			say(w, "%s", line)
		}
	}
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

// say writes a message to the error stream. Where that is closed there is nobody
// to tell.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "engine: "+format+"\n", args...)
}
