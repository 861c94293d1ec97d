package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/term"
)

// Main runs the command line of os.Args, and ends the process with its exit status.
func Main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the whole program; it returns the exit status.
func run(args []string, out, errs io.Writer) int {
	broken := make(chan struct{}, 1)
	errs = term.NewWriter(outlet{errs, broken}, words.Harmless) // nobody but people reads it
	errs = &diverted{w: errs}
	a := &app{out: &stream{w: outlet{out, broken}}, err: errs, broken: broken, terminal: term.IsTerminal(out), width: term.Width(out),
		now: time.Now}
	root := a.newRoot()
	root.SetArgs(args)
	root.SetOut(a.people())
	root.SetErr(errs)
	err := root.Execute()
	if err != nil && !a.working {
		err = &usageError{err}
	}
	if err == nil && a.out.err != nil {
		err = fmt.Errorf("write the output: %w", a.out.err)
	}
	explain(errs, err)
	return exitCode(err)
}

// app is what the commands share.
type app struct {
	out      *stream // the output as it is: see people and programs
	err      io.Writer
	broken   <-chan struct{} // a reader of out or err has ended
	terminal bool            // out is one
	width    func() int      // of the terminal that out is; nil: it is none, or can't redraw a line
	now      func() time.Time
	ending   func() // of the worker processes of a run; nil: there are none
	working  bool   // a command has begun its work: its flags and arguments are understood
}

// people is the output for what people read: nothing in it can steer a terminal,
// whatever file it comes from.
func (a *app) people() io.Writer { return term.NewWriter(a.out, words.Harmless) }

// programs is the output for what programs read. They get every byte, but a terminal
// does not obey.
func (a *app) programs() io.Writer {
	if a.terminal {
		return a.people()
	}
	return a.out
}

// stream is an output that keeps its first error, so that the many places that
// write need not look for it.
type stream struct {
	w   io.Writer
	err error
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// printf writes for people; run looks for the error.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.people(), format, args...) }

// json writes a value as a line of JSON.
func (a *app) json(v any) error {
	enc := json.NewEncoder(a.jsonOut())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// work makes a command of a function. What fails before it is called is a matter
// of usage.
func (a *app) work(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.working = true
		return f(cmd, args)
	}
}

// hidden are commands that some builds have beside the others.
var hidden []func(*app) *cobra.Command

func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "engine",
		Short: "Train neural networks in pipeline stages",
		Long: `engine trains neural networks in pipeline stages that are actors, and uses what
it has trained. A run is described by one TOML file:

  engine init            write a commented config.toml to start from
  engine run config.toml train; again to go on where it stopped
  engine generate --from runs/run --prompt "Once"`,
		Version:       describeBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("engine {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.newRun(), a.newEval(), a.newPredict(), a.newGenerate(), a.newTokenize(), a.newExport(), a.newTensorBoard(),
		a.newConfig(), a.newInit(), a.newCkpt(), a.newPlan(), a.newTrace(), a.newDiff(), a.newReport(), a.newUI(), a.newBench(), a.newDoctor(),
		a.newCluster(), a.newWorker(), a.newPs(), a.newTop(), a.newStatus(), a.newLogs(), a.newFollow(), a.newStop(), a.newVersion(), exitCodes())
	for _, more := range hidden {
		root.AddCommand(more(a))
	}
	asGroup(root)
	return root
}
