package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/term"
)

// Main runs the command line in os.Args and exits the process with its exit status.
func Main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the whole program. It returns the exit status.
func run(args []string, out, errs io.Writer) int {
	broken := make(chan struct{}, 1)
	errs = term.NewWriter(outlet{errs, broken}, words.Harmless) // only people read it
	errs = &diverted{w: errs}
	a := &app{out: &stream{w: outlet{out, broken}}, err: errs, broken: broken, terminal: term.IsTerminal(out), width: term.Width(out),
		now: time.Now, args: args}
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

// app is the state that all commands share.
type app struct {
	out      *stream // standard output, unfiltered: see people and programs
	err      io.Writer
	broken   <-chan struct{} // receives when a reader of out or err has closed its end
	terminal bool            // out is a terminal
	width    func() int      // columns of the terminal; nil: out is no terminal, or the terminal can't redraw a line
	now      func() time.Time
	args     []string // the command line
	ending   func()   // stops the run's worker processes; nil: there are none
	working  bool     // flags and arguments are valid, and the command has started its work
	told     []string // what tell has printed
}

// people returns the output for text that people read. It removes control sequences, so that no
// text from a file can steer the terminal.
func (a *app) people() io.Writer { return term.NewWriter(a.out, words.Harmless) }

// programs returns the output for data that programs read. A pipe or a file gets every byte; a
// terminal gets text without control sequences.
func (a *app) programs() io.Writer {
	if a.terminal {
		return a.people()
	}
	return a.out
}

// tell prints what the start of a run is about to do. The run's events say it again.
func (a *app) tell(text string) {
	a.told = append(a.told, text)
	say(a.err, "%s", text)
}

// stream is an output that keeps its first error, so that the callers need not check each write.
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

// printf writes text for people. run reports the error, if any.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.people(), format, args...) }

// json writes v as one line of JSON.
func (a *app) json(v any) error {
	enc := json.NewEncoder(a.jsonOut())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// work wraps the function of a command. An error before the function is called is a usage error.
func (a *app) work(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.working = true
		return f(cmd, args)
	}
}

// hidden lists the commands that only some builds have.
var hidden []func(*app) *cobra.Command

func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "engine",
		Short: "Train neural networks in pipeline stages",
		Long: `engine trains neural networks and runs the trained models. It splits a model into
pipeline stages; each stage is an actor on its own cores, GPU or machine. One TOML
file, the config, describes a run.

Start here:

  engine init              write config.toml; --data FILE fits it to your data
  engine run config.toml   train; run the same command again to resume
  engine generate --from runs/run --prompt "Once"`,
		Version:       describeBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("engine {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.SetFlagErrorFunc(flagError(a.args))
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.newRun(), a.newEval(), a.newPredict(), a.newGenerate(), a.newServe(), a.newTokenize(), a.newExport(), a.newTensorBoard(),
		a.newConfig(), a.newInit(), a.newTune(), a.newCkpt(), a.newPlan(), a.newTrace(), a.newDiff(), a.newReport(), a.newUI(),
		a.newBench(), a.newDoctor(),
		a.newCluster(), a.newWorker(), a.newPs(), a.newTop(), a.newStatus(), a.newLogs(), a.newFollow(), a.newStop(), a.newDrain(),
		a.newVersion(), exitCodes(), formats())
	root.AddCommand(a.newChanges("")...)
	for _, more := range hidden {
		root.AddCommand(more(a))
	}
	asGroup(root)
	groupCommands(root)
	return root
}

// groups are the headings of engine --help, each with its commands. A command in none of them stands under
// "Additional Commands".
var groups = []struct {
	title    string
	commands []string
}{
	{"Train a model:", []string{"init", "config", "tokenize", "plan", "run", "tune"}},
	{"Use a trained model:", []string{"generate", "serve", "eval", "predict", "export"}},
	{"Inspect and compare runs:", []string{"ui", "report", "diff", "trace", "tensorboard", "ckpt"}},
	{"Watch and control runs:", []string{"ps", "status", "top", "logs", "follow", "pause", "resume", "checkpoint", "rate", "stop"}},
	{"Train on a cluster:", []string{"cluster", "worker", "drain"}},
	{"About this program and this machine:", []string{"doctor", "version", "help", "completion"}},
}

// groupCommands puts the commands under their headings.
func groupCommands(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	last := groups[len(groups)-1].title
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
}
