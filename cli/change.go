package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// newChanges makes the commands that send requests to a run, except stop. prefix is the command above them.
func (a *app) newChanges(prefix string) []*cobra.Command {
	return []*cobra.Command{
		a.newChange(prefix, "pause", "Pause a run after the current step", event.ChangePause),
		a.newChange(prefix, "resume", "Resume a paused run and cancel scheduled pauses", event.ChangeResume),
		a.newChange(prefix, "checkpoint", "Write a checkpoint of a run after the current step", event.ChangeCheckpoint),
		a.newChange(prefix, "rate", "Change a run's learning rate", event.ChangeRate)}
}

// changeWaits says, for each kind of request, what the command waits for.
var changeWaits = map[event.ChangeKind]string{event.ChangePause: "run is paused", event.ChangeResume: "run has resumed",
	event.ChangeCheckpoint: "checkpoint is written", event.ChangeRate: "run has accepted the request"}

// changeNotes say more about a kind of request.
var changeNotes = map[event.ChangeKind]string{
	event.ChangeResume: `

engine resume is for a paused run. A run that has stopped, or whose process has ended,
resumes with engine run: engine run runs/first.`,
	event.ChangeRate: `

--lr is the new peak of the schedule: warm-up and decay continue from the run's step. So
the rate of the next step may be below it. A change without --at-step cancels earlier
changes that are scheduled for a later step.`,
}

// newChange makes a command that sends a request to a run.
func (a *app) newChange(prefix, name, short string, kind event.ChangeKind) *cobra.Command {
	var o clientFlags
	ch := troupe.Change{Kind: kind}
	var asJSON, noWait bool
	later := ""
	if kind != event.ChangeResume {
		later = "\nWith --at-step it returns at once."
	}
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Long: short + `. The command waits until the
` + changeWaits[kind] + `, and says at which step.` + later + `

` + aboutRUN + ` engine ps lists runs.` + changeNotes[kind] + `

The run keeps the request until it is done, even if a worker fails or the coordinator
restarts. engine status lists the requests that are not done yet. A request with --at-step,
and every change of the learning rate, is written to the run's changes.jsonl before it
takes effect. If the run later resumes from an older checkpoint, the request takes effect
at the same step again, so the losses repeat.

See also: engine stop, engine status, engine ps.`,
		Example: changeExamples(prefix+name, kind),
		Args:    takes("RUN"),

		ValidArgsFunction: completeFolders,
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
			r, err := o.open(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			defer r.close()
			s, text, err := a.request(cmd.Context(), r, ch, noWait)
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(jsonRun(s))
			}
			a.printf("%s: %s\n", s.title(), text)
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
		cmd.Args = requires(cmd.Args, "lr", "give the new peak learning rate, such as --lr 3e-4")
	}
	f.BoolVar(&noWait, "no-wait", false, "return at once, without waiting until the request is done")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func changeExamples(command string, kind event.ChangeKind) string {
	flags := ""
	if kind == event.ChangeRate {
		flags = " --lr 3e-4"
	}
	text := "  engine " + command + " runs/first" + flags + "\n"
	if kind != event.ChangeResume {
		text += "  engine " + command + " first" + flags + " --at-step 2000\n"
	}
	return text + "  engine " + command + " tiny" + flags + " --cluster head:7070"
}

// request sends a run a request and, unless noWait is set or the request names a step, waits until it is done. text says what
// happened.
func (a *app) request(ctx context.Context, r steered, ch troupe.Change, noWait bool) (s seen, text string, err error) {
	before, err := r.status(ctx)
	if err != nil {
		return s, "", err
	}
	switch {
	case before.Over():
		return s, "", before.deaf()
	case before.Position > 0: // the coordinator refuses it
	case ch.Kind == event.ChangeResume && before.State != "paused" && !before.scheduled(event.ChangePause):
		return before, "nothing to resume: the run is not paused, " + before.now(), nil
	case ch.Kind == event.ChangePause && ch.Step == 0 && before.State == "paused":
		return before, fmt.Sprintf("the run is paused already, after step %d/%d", before.Step, before.Steps), nil
	}
	if s, err = r.change(ctx, ch); err != nil {
		return s, "", err
	}
	a.warnOf(s.RunSummary)
	switch {
	case ch.Step > 0:
		return s, fmt.Sprintf("will %s after step %d, now at step %d/%d", changeWords[ch.Kind], max(ch.Step, int64(s.Step)), s.Step, s.Steps), nil
	case ch.Kind == event.ChangeRate:
		return s, fmt.Sprintf("peak learning rate %.6g, floor %.6g, after step %d/%d", ch.LR, ch.MinLR, s.Step, s.Steps), nil
	case noWait:
		return s, fmt.Sprintf("will %s, now at step %d/%d", changeWords[ch.Kind], s.Step, s.Steps), nil
	}
	return a.await(ctx, r, ch.Kind, before)
}

// await waits until a request is done, and says what happened.
func (a *app) await(ctx context.Context, r steered, kind event.ChangeKind, before seen) (s seen, text string, err error) {
	var done time.Time // when the request was done
	s, err = lookUntil(ctx, r, func(s seen) bool {
		switch {
		case kind == event.ChangePause:
			return s.State == "paused"
		case kind == event.ChangeResume:
			return s.State != "paused"
		case s.requested(kind):
			return false
		case done.IsZero():
			done = a.now()
		}
		// The run may say a moment later which checkpoint it has written.
		return s.Checkpoint != before.Checkpoint || s.Step == before.Step || a.now().Sub(done) > eventTime
	})
	switch {
	case err != nil:
		return s, "", err
	case kind == event.ChangeCheckpoint && s.Checkpoint != before.Checkpoint, kind == event.ChangeCheckpoint && !s.Over():
		return s, "wrote the checkpoint " + words.OneLine(s.Checkpoint), nil
	case s.Over():
		return s, "", fmt.Errorf("%s: %w, at step %d/%d (%s)", s.title(), errOverFirst, s.Step, s.Steps, s.State)
	case kind == event.ChangePause:
		return s, fmt.Sprintf("paused after step %d/%d", s.Step, s.Steps), nil
	}
	return s, fmt.Sprintf("resumed after step %d/%d", before.Step, s.Steps), nil
}

// eventTime is how long the event of a request that is done may take.
const eventTime = 2 * time.Second

// now says what the run does and at which step.
func (s seen) now() string {
	phase := s.phase
	if phase == "" {
		phase = s.State
	}
	return fmt.Sprintf("%s at step %d/%d", phase, s.Step, s.Steps)
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
