package cli

import (
	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// newChange makes a command that changes a run.
func (a *app) newChange(name, short string, kind event.ChangeKind) *cobra.Command {
	var o clientFlags
	ch := troupe.Change{Kind: kind}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Long: short + `. RUN is its id, the beginning of it, or its name:
engine ps lists them. A request is kept until it is done, also if a worker fails or the
coordinator is started again; engine status lists those that are not done. A change that
names a step, and one of the learning rate, is written to the run's changes.jsonl before it
takes effect, and takes effect at the same step again when the run resumes from an older
checkpoint: the figures repeat. A learning rate without a step cancels earlier ones that
were to take effect later.`,
		Example: "  engine cluster " + name + " tiny" + map[bool]string{true: " --lr 3e-4 --at-step 2000"}[kind == event.ChangeRate],
		Args:    takes("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at-step") {
				if err := stepNamed(ch.Step); err != nil {
					return err
				}
			}
			if kind == event.ChangeRate && !cmd.Flags().Changed("min-lr") {
				ch.MinLR = ch.LR / 10
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
				a.printf("%s: told to %s when step %d has ended, now at step %d/%d\n", runName(s), changeWords[kind], max(ch.Step, int64(s.Step)),
					s.Step, s.Steps)
			default:
				a.printf("%s: told to %s, at step %d/%d\n", runName(s), changeWords[kind], s.Step, s.Steps)
			}
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	if kind != event.ChangeResume {
		f.Int64Var(&ch.Step, "at-step", 0, "when this `step` has ended (default: the one in progress)")
	}
	if kind == event.ChangeRate {
		f.Float64Var(&ch.LR, "lr", 0, "the new peak of the `rate`")
		f.Float64Var(&ch.MinLR, "min-lr", 0, "where its decay ends (default: a tenth)")
		must(cmd.MarkFlagRequired("lr"))
	}
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warnOf passes on what an answer to a request warns of.
func (a *app) warnOf(s cluster.RunSummary) {
	if s.Warning != "" {
		say(a.err, "warning: %s", s.Warning)
	}
}

// stepNamed looks at the step of --at-step.
func stepNamed(step int64) error {
	if step < 1 {
		return usagef("--at-step %d: give the number of a step, 1 or more", step)
	}
	return nil
}

// changeWords say what a run was told to do.
var changeWords = map[event.ChangeKind]string{event.ChangePause: "pause", event.ChangeResume: "resume",
	event.ChangeCheckpoint: "write a checkpoint", event.ChangeStop: "stop", event.ChangeRate: "change its learning rate"}
