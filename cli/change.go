package cli

import (
	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// newChange makes a command that sends a request to a run.
func (a *app) newChange(name, short string, kind event.ChangeKind) *cobra.Command {
	var o clientFlags
	ch := troupe.Change{Kind: kind}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Long: short + `. RUN is the run's id, the start of its id, or its name; engine ps
lists them.

The coordinator keeps the request until it is done, even if a worker fails or the
coordinator restarts. engine status lists the requests that are not done yet.

A request with --at-step, and every change of the learning rate, is written to the run's
changes.jsonl before it takes effect. If the run later resumes from an older checkpoint,
the request takes effect at the same step again, so the losses repeat.` +
			map[bool]string{true: ` A change without
--at-step cancels earlier changes that are scheduled for a later step.`}[kind == event.ChangeRate] + `

See also: engine stop, engine status, engine ps.`,
		Example: "  engine cluster " + name + " tiny" + map[bool]string{true: " --lr 3e-4 --at-step 2000"}[kind == event.ChangeRate],
		Args:    takes("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at-step") {
				if err := stepNamed(ch.Step); err != nil {
					return err
				}
			}
			if kind == event.ChangeRate && !cmd.Flags().Changed("min-lr") {
				ch.MinLR = event.RateChange(ch.LR).MinLR
			}
			if err := ch.Check(); err != nil {
				return &usageError{err}
			}
			c, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := c.Change(cmd.Context(), args[0], ch)
			if err != nil {
				return err
			}
			a.warnOf(s)
			switch {
			case asJSON:
				return a.json(jsonRun(s))
			case ch.Step > 0:
				a.printf("%s: will %s after step %d, now at step %d/%d\n", runName(s), changeWords[kind], max(ch.Step, int64(s.Step)),
					s.Step, s.Steps)
			default:
				a.printf("%s: will %s, now at step %d/%d\n", runName(s), changeWords[kind], s.Step, s.Steps)
			}
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	if kind != event.ChangeResume {
		f.Int64Var(&ch.Step, "at-step", 0, "take effect after this `step` (default: after the current step)")
	}
	if kind == event.ChangeRate {
		f.Float64Var(&ch.LR, "lr", 0, "new peak learning `rate` (required)")
		f.Float64Var(&ch.MinLR, "min-lr", 0, "new floor of the learning `rate`, where its decay ends (default: a tenth of --lr)")
		must(cmd.MarkFlagRequired("lr"))
	}
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warnOf prints the warning in an answer to a request, if any.
func (a *app) warnOf(s cluster.RunSummary) {
	if s.Warning != "" {
		say(a.err, "warning: %s", s.Warning)
	}
}

// stepNamed checks the step of --at-step.
func stepNamed(step int64) error {
	if step < 1 {
		return usagef("--at-step %d: give the number of a step, 1 or more", step)
	}
	return nil
}

// changeWords says what a run does for each kind of request.
var changeWords = map[event.ChangeKind]string{event.ChangePause: "pause", event.ChangeResume: "resume",
	event.ChangeCheckpoint: "write a checkpoint", event.ChangeStop: "stop", event.ChangeRate: "change its learning rate"}
