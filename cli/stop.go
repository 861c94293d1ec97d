package cli

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

func (a *app) newStop() *cobra.Command {
	var o clientFlags
	var kill, noWait, asJSON bool
	at := troupe.Change{Kind: event.ChangeStop}
	cmd := &cobra.Command{
		Use:   "stop RUN",
		Short: "Stop a run, with a checkpoint",
		Long: `Stop a run after the current step, or after the step of --at-step. The run writes a
checkpoint; engine run with the same config, or with the run's folder, resumes it. The
command waits until the run has ended.

` + aboutRUN + `

If a worker fails before the run has stopped, the run ends at its last checkpoint.

--at-step must name a step that has not ended yet. The request is written to the run's
changes.jsonl, so the run stops there even if it resumes from an older checkpoint first.

See also: engine ps, engine pause, engine run.`,
		Example: `  engine stop runs/first
  engine stop first --at-step 5000 --no-wait
  engine stop 3f2a91c0 --kill --cluster head:7070`,
		Args: takes("RUN"),

		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at-step") {
				if err := stepNamed(at.Step); err != nil {
					return err
				}
				if kill {
					return usagef("--at-step and --kill can't be combined: --kill ends the run at once; use only one")
				}
			}
			ctx := cmd.Context()
			r, err := o.open(ctx, cmd, args[0])
			if err != nil {
				return err
			}
			defer r.close()
			var s seen
			if kill {
				s, err = r.kill(ctx)
			} else {
				s, err = r.change(ctx, at)
			}
			if err != nil {
				return err
			}
			a.warnOf(s.RunSummary)
			if !noWait {
				if s, err = r.ended(ctx, kill); err != nil {
					return err
				}
			}
			switch {
			case asJSON:
				return a.json(jsonRun(s))
			case noWait && at.Step > 0:
				a.printf("%s: will stop after step %d, now at step %d/%d\n", s.title(), at.Step, s.Step, s.Steps)
			case noWait:
				a.printf("%s: will stop, now at step %d/%d\n", s.title(), s.Step, s.Steps)
			case s.Checkpoint == "":
				a.printf("%s: %s at step %d/%d; there is no checkpoint\n", s.title(), s.stopped(kill), s.Step, s.Steps)
			default:
				a.printf("%s: %s at step %d/%d; checkpoint %s\n", s.title(), s.stopped(kill), s.Step, s.Steps, words.OneLine(s.Checkpoint))
			}
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.Int64Var(&at.Step, "at-step", 0, "stop after this `step` (default: after the current step)")
	f.BoolVar(&kill, "kill", false, "end the run at once; the steps since its last checkpoint are lost")
	f.BoolVar(&noWait, "no-wait", false, "return at once, without waiting until the run has ended")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// stopped says how a run ended that was to stop. It may have reached its last step first.
func (s seen) stopped(kill bool) string {
	switch {
	case kill:
		return "killed"
	case s.State == event.OutcomeDone:
		return "done"
	}
	return "stopped"
}

func (a *app) newFollow() *cobra.Command {
	var o clientFlags
	run := runFlags{leaves: true}
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Show the progress of a run",
		Long: `Show the progress of a run as engine run does: the events as they happen, of a cluster's run
first the latest ones. Ctrl-C stops following with exit status 75; the run continues.

` + aboutRUN + `

See also: engine run --cluster, engine top, engine stop.`,
		Example: `  engine follow runs/first
  engine follow 3f2a91c0 --json > log.jsonl`,
		Args: takes("RUN"),

		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if run.quiet && run.json {
				return usagef("--quiet and --json can't be combined; use only one")
			}
			if run.view && (run.quiet || run.json) {
				return usagef("--view can't be combined with --quiet or --json: use only one of them")
			}
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, runSignals()...)
			a.mindPipes(signals)
			dir, err := o.locate(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			if dir != "" {
				return a.followRun(cmd.Context(), dir, run, leaving(signals))
			}
			c, err := start(a, "stopped before the run was followed", func() (*cluster.Client, error) { return o.connect(cmd.Context()) }, signals)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.followed(cmd.Context(), c, o.words(), args[0], false, run, leaving(signals))
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.BoolVarP(&run.quiet, "quiet", "q", false, "print only warnings, errors and the last line")
	f.BoolVar(&run.json, "json", false, `print one JSON object per line, each with the key "event"`)
	f.BoolVar(&run.view, "view", false, "draw the stages, their actions and the loss curve at the bottom of the terminal")
	return cmd
}

// leaving replaces every signal that would stop the run by one that only stops following it.
func leaving(signals <-chan os.Signal) <-chan os.Signal {
	to := make(chan os.Signal, cap(signals))
	go func() { // ends with the program
		for s := range signals {
			if s == syscall.SIGINT || s == syscall.SIGTERM {
				s = syscall.SIGHUP
			}
			to <- s
		}
	}()
	return to
}
