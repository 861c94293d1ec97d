package event

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry"
)

// MarkOf describes an event in words, with the current time: a line of events.jsonl, which the page, the command line
// and reports show too. ended is the last finished step, for events that name no step. It returns false for a
// StepEvent, which has no words. The text of a stall has several lines, all others have one.
func MarkOf(e Event, ended int) (telemetry.Mark, bool) {
	m := telemetry.Mark{TimeMS: clock.Now().UnixMilli(), Step: ended}
	switch e := e.(type) {
	case CheckpointEvent:
		m.Step, m.Kind, m.Text = int(e.Step), telemetry.MarkCheckpoint, fmt.Sprintf("checkpoint %s written in %s", e.Dir, words.Duration(e.Took))
		switch {
		case e.Weights:
			m.Text = fmt.Sprintf("best weights so far written to %s in %s", e.Dir, words.Duration(e.Took))
		case e.Best:
			m.Text += ", the best so far"
		}
	case PauseEvent:
		m.Step, m.Kind, m.Text = int(e.Step), telemetry.MarkContinue, fmt.Sprintf("resumed after step %d", e.Step)
		if e.Paused {
			m.Kind, m.Text = telemetry.MarkPause, fmt.Sprintf("paused after step %d", e.Step)
		}
	case TextEvent:
		m.Step, m.Kind, m.Text = int(e.Step), telemetry.MarkSample, sayText(e)
	case ChangeEvent:
		m.Kind, m.Text = sayChange(e)
	case RestartEvent:
		m.Kind, m.Text = telemetry.MarkRestart, fmt.Sprintf("%v; resuming from the last checkpoint (restart %d of %d)", e.Err, e.Restart, e.Most)
		if e.Why != "" {
			m.Text += "; the ranks were not replaced: " + e.Why
		}
	case ReplaceEvent:
		m.Step, m.Kind, m.Text = int(e.Step), telemetry.MarkReplace, sayReplace(e)
	case RegroupEvent:
		m.Step, m.Kind, m.Text = int(e.Step), telemetry.MarkRegroup, sayRegroup(e)
	case StallEvent:
		lines := append([]string{"no progress for " + words.Duration(e.Quiet)}, e.Status.Chain()...)
		if n := len(lines); n > 1 {
			lines[n-1] = e.Status.Explain()
		}
		m.Kind, m.Text = telemetry.MarkStall, strings.Join(lines, "\n")
	case WarningEvent:
		m.Kind, m.Text = telemetry.MarkWarning, e.Text
	case EndEvent:
		m.Step, m.Kind, m.Text = e.Result.Step, telemetry.MarkEnd, sayEnd(e)
	default:
		return telemetry.Mark{}, false
	}
	return m, true
}

// mostSaid is the number of characters of a text that its mark has.
const mostSaid = 100

// sayText says how a text begins.
func sayText(e TextEvent) string {
	text := strings.Join(strings.Fields(e.Prompt+e.Text), " ")
	if text == "" {
		text = "(only white space)"
	}
	if all := []rune(text); len(all) > mostSaid {
		text = string(all[:mostSaid]) + "…"
	}
	return fmt.Sprintf("sample at step %d: %s", e.Step, words.OneLine(text))
}

// sayChange says what was requested, and why it was refused.
func sayChange(e ChangeEvent) (kind, text string) {
	if e.Err != nil {
		return telemetry.MarkWarning, fmt.Sprintf("refused: %v: %v", e.Change, e.Err)
	}
	switch e.Kind {
	case ChangeRate:
		if e.Note != "" {
			return telemetry.MarkRate, e.Note
		}
		return telemetry.MarkRate, fmt.Sprintf("learning rate from step %d: peak %.6g, floor %.6g", e.Step+1, e.LR, e.MinLR)
	case ChangeStop:
		return telemetry.MarkStop, "requested: " + e.String()
	}
	return telemetry.MarkRequest, "requested: " + e.String()
}

// The outcomes of a run.
const (
	OutcomeDone    = "done"
	OutcomeStopped = "stopped" // before its last step, by a request
	OutcomeFailed  = "failed"
)

// Outcome returns how a run ended, from the mark of its EndEvent.
func Outcome(m telemetry.Mark) string {
	switch _, failed := m.Failure(); {
	case failed:
		return OutcomeFailed
	case strings.HasPrefix(m.Text, stoppedAt):
		return OutcomeStopped
	}
	return OutcomeDone // also early
}

// stoppedAt begins the text of the end of a run that a request stopped.
const stoppedAt = "stopped at step "

// sayRegroup says why the run changes its workers.
func sayRegroup(e RegroupEvent) string {
	if len(e.Lost) > 0 {
		return fmt.Sprintf("%s failed, and no other worker can take its ranks: checkpoint step %d written from their replicas or shadows, "+
			"no step lost", workerNames(e.Lost), e.Step)
	}
	if len(e.Leaving) == 0 {
		verb, it := "is", "it"
		if len(e.Free) > 1 {
			verb, it = "are", "them"
		}
		return fmt.Sprintf("%s %s free: the run uses %s from checkpoint step %d", workerNames(e.Free), verb, it, e.Step)
	}
	verb := "leaves"
	if len(e.Leaving) > 1 {
		verb = "leave"
	}
	return fmt.Sprintf("%s %s: checkpoint step %d written, no step lost; the run continues on other workers", workerNames(e.Leaving), verb,
		e.Step)
}

// sayReplace says which ranks were replaced, and in what time.
func sayReplace(e ReplaceEvent) string {
	word := "rank"
	if len(e.Ranks) != 1 {
		word = "ranks"
	}
	from := ""
	if e.Source != "" {
		from = fmt.Sprintf(" from %s (%s)", e.Source, words.Bytes(e.Bytes))
	}
	return fmt.Sprintf("%v; %s %s replaced%s in %s, the run continues after step %d", e.Err, word, words.Numbers(e.Ranks), from,
		words.Duration(e.Loaded), e.Step)
}

func workerNames(names []string) string {
	if len(names) == 1 {
		return "worker " + names[0]
	}
	return "workers " + strings.Join(names, ", ")
}

func sayEnd(e EndEvent) string {
	r := e.Result
	switch {
	case e.Err != nil:
		return telemetry.Failed(e.Err)
	case r.Stopped:
		return fmt.Sprintf(stoppedAt+"%d/%d", r.Step, r.Steps)
	case r.Early:
		return fmt.Sprintf("stopped early at step %d/%d: no better validation loss since step %d (run.patience)", r.Step, r.Steps, r.BestStep)
	}
	if r.Step > r.Steps {
		return fmt.Sprintf("done: the run has reached step %d; run.steps = %d is less", r.Step, r.Steps)
	}
	return fmt.Sprintf("done: step %d/%d", r.Step, r.Steps)
}
