package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
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
		Short: "Stop a run of a cluster, with a checkpoint",
		Long: `Stop a run of a cluster at the end of its step, or of the step --at-step. It writes a
checkpoint, and goes on from it when it is submitted again. RUN is its id, the beginning
of it, or its name. The command waits until the run has ended.

If a worker fails before the run has stopped, the run ends at its last checkpoint instead.

A step that has ended is refused. A later one is written to the run's changes.jsonl first,
and the run stops there also when it resumes from an older checkpoint meanwhile.`,
		Example: `  engine stop tiny
  engine stop tiny --at-step 5000 --no-wait
  engine stop 3f2a91c0 --kill`,
		Args: takes("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at-step") {
				if err := stepNamed(at.Step); err != nil {
					return err
				}
				if kill {
					return usagef("--at-step and --kill: a run is killed at once; leave one out")
				}
			}
			ctx := cmd.Context()
			c, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			what := cluster.Stop
			if kill {
				what = cluster.Kill
			}
			var s cluster.RunSummary
			if at.Step > 0 {
				s, err = c.Change(ctx, args[0], at)
			} else {
				s, err = c.Control(ctx, args[0], what)
			}
			if err != nil {
				return err
			}
			a.warnOf(s)
			if !noWait {
				f, err := c.Follow(ctx, s.ID, cluster.FollowOptions{})
				if err != nil {
					return err
				}
				for range f.Events() { // only the end counts
				}
				if _, err := f.Wait(); err != nil && (!kill || !errors.Is(err, actors.ErrKilled)) {
					return err
				}
				if s, _, err = c.Status(ctx, s.ID); err != nil {
					return err
				}
			}
			switch {
			case asJSON:
				return a.json(jsonRun(s))
			case noWait && at.Step > 0:
				a.printf("%s: told to stop when step %d has ended, now at step %d/%d\n", runName(s), at.Step, s.Step, s.Steps)
			case noWait:
				a.printf("%s: told to stop, at step %d/%d\n", runName(s), s.Step, s.Steps)
			case s.Checkpoint == "":
				a.printf("%s: stopped at step %d/%d; there is no checkpoint\n", runName(s), s.Step, s.Steps)
			default:
				a.printf("%s: stopped at step %d/%d; checkpoint %s\n", runName(s), s.Step, s.Steps, words.OneLine(s.Checkpoint))
			}
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.Int64Var(&at.Step, "at-step", 0, "when this `step` has ended (default: the one in progress)")
	f.BoolVar(&kill, "kill", false, "end it at once: what was trained since the last checkpoint is lost")
	f.BoolVar(&noWait, "no-wait", false, "don't wait until it has ended")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) newFollow() *cobra.Command {
	var o clientFlags
	run := runFlags{leaves: true}
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Follow a run of a cluster",
		Long: `Show the progress of a run of a cluster as engine run does: what has happened
lately, and what does. Ctrl-C ends the following, with exit 75, not the run.`,
		Example: `  engine follow tiny
  engine follow 3f2a91c0 --json > log.jsonl`,
		Args: takes("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if run.quiet && run.json {
				return usagef("--quiet and --json exclude each other")
			}
			if run.view && (run.quiet || run.json) {
				return usagef("--view excludes --quiet and --json: one draws, the others leave out or write for programs")
			}
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, runSignals()...)
			a.mindPipes(signals)
			c, err := start(a, "nothing was followed", func() (*cluster.Client, error) { return o.connect(cmd.Context()) }, signals)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.followed(cmd.Context(), c, o.cluster, args[0], false, run, leaving(signals))
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.BoolVarP(&run.quiet, "quiet", "q", false, "print only warnings, errors and how it ended")
	f.BoolVar(&run.json, "json", false, `print a JSON object a line, each with an "event"`)
	f.BoolVar(&run.view, "view", false, "on a terminal, draw the stages, what each does, and the curve of the loss in the last rows")
	return cmd
}

// leaving makes every signal that would end a run one that ends following it.
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
