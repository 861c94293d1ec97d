package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/telemetry"
)

// aside is a checkpoint that is newer than the one that the run resumes from. The run renames it.
type aside struct {
	step   int
	suffix string
	why    string // "": the user chose the older one
}

// find opens the checkpoint of a step or, with 0, the newest intact one, and records
// the newer ones, to rename them.
func (d *Dir) find(fromStep int) (*checkpoint.Checkpoint, error) {
	if fromStep == 0 {
		ckpt, damaged, err := d.Store.Newest()
		for _, found := range damaged {
			d.aside = append(d.aside, aside{found.Step, checkpoint.DamagedSuffix, found.Err.Error()})
		}
		if err != nil {
			return nil, d.advise(err)
		}
		return ckpt, nil
	}
	steps, err := d.Store.Steps()
	if err != nil {
		return nil, err
	}
	if d.wentBack(steps, fromStep) {
		if ckpt, err := d.onceMore(fromStep, slices.Max(steps)); ckpt != nil || err != nil {
			return ckpt, err
		}
	}
	ckpt, err := d.Store.At(fromStep)
	if err != nil {
		return nil, err
	}
	d.byName = true
	for _, step := range slices.Backward(steps) {
		if step > fromStep {
			d.aside = append(d.aside, aside{step: step, suffix: checkpoint.SupersededSuffix})
		}
	}
	return ckpt, nil
}

// onceMore opens the newest intact checkpoint if the run has gone back already;
// nil: all newer ones are damaged, so the run must go back again.
func (d *Dir) onceMore(fromStep, newest int) (*checkpoint.Checkpoint, error) {
	before := fmt.Sprintf("the run already went back to step %d on request and has reached step %d since", fromStep, newest)
	const again = "to go back again, move the newer checkpoints away"
	ckpt, err := d.find(0)
	if err != nil {
		return nil, fmt.Errorf("%w (%s; %s)", err, before, again)
	}
	if ckpt.Step() <= fromStep {
		d.aside = nil
		return nil, ckpt.Close()
	}
	d.Warnings = append(d.Warnings, fmt.Sprintf("%s: it resumes from there (%s)", before, again))
	return ckpt, nil
}

// wentBack reports whether the run went back to fromStep on request and has newer
// checkpoints since. A supervisor that restarts a stopped run with the same command does not
// want to go back again.
func (d *Dir) wentBack(steps []int, fromStep int) bool {
	for _, step := range slices.Backward(steps) {
		if step <= fromStep {
			return false
		}
		decisions, err := d.decisions(step)
		if err != nil {
			continue // older ones have the same decision
		}
		for _, decision := range slices.Backward(decisions) {
			if decision.Kind == trainstate.FromStep {
				return decision.Step == int64(fromStep)
			}
		}
		return false
	}
	return false
}

// decisions returns those in the checkpoint of a step. The rest of the checkpoint is not read
// or judged, unless its file cannot be found: a crash may have left a second checkpoint of the
// step.
func (d *Dir) decisions(step int) ([]trainstate.Decision, error) {
	look, err := d.Store.Look(step, TrainerFile)
	if err != nil {
		return nil, err
	}
	text := look.File
	if text == nil {
		ckpt, err := d.Store.At(step)
		if err != nil {
			return nil, err
		}
		text, err = ckpt.File(TrainerFile)
		if err := errors.Join(err, ckpt.Close()); err != nil {
			return nil, err
		}
	}
	state, err := trainerState(text)
	return state.Decisions, err
}

// ByName reports whether the user named the step that the run resumes from.
func (d *Dir) ByName() bool { return d.byName }

// Decision returns the user's decision to go back to a step; nil: there was none. It is recorded even if
// there was no newer checkpoint, or if an interrupted start has renamed them already:
// the same command, given again, then finds that it was carried out.
func (d *Dir) Decision(from int64) *trainstate.Decision {
	if !d.byName {
		return nil
	}
	var steps []string
	for _, a := range d.aside {
		steps = append(steps, strconv.Itoa(a.step))
	}
	detail := "there was no newer checkpoint"
	if len(steps) > 0 {
		detail = "superseded: the checkpoints of steps " + strings.Join(steps, ", ")
	}
	return &trainstate.Decision{Step: from, Time: clock.Now().UTC(), Kind: trainstate.FromStep, Detail: detail}
}

// advise adds to an error about a checkpoint that is not proven to be damaged how to resume
// without it.
func (d *Dir) advise(err error) error {
	if errors.Is(err, checkpoint.ErrAllDamaged) {
		return fmt.Errorf("%w\nreplace one of them with a copy, or choose another run.out", err)
	}
	var at *checkpoint.StepError
	if !errors.As(err, &at) || !errors.Is(err, checkpoint.ErrMissing) && !errors.Is(err, checkpoint.ErrUnreadable) &&
		!errors.Is(err, checkpoint.ErrVersion) {
		return err
	}
	steps, listErr := d.Store.Steps()
	if listErr != nil {
		return err
	}
	steps = slices.DeleteFunc(steps, func(step int) bool { return step >= at.Step })
	if len(steps) == 0 {
		return err
	}
	return fmt.Errorf("%w; or resume from an older one with --from-step (available: %s): the newer ones are then renamed to ….superseded",
		err, words.Numbers(steps))
}

// unsaved checks that a run without a checkpoint never had one. A checkpoint is
// written while training continues, but only until the next one is due.
func (d *Dir) unsaved() error {
	if d.Config == nil {
		return nil
	}
	stored, err := config.ParseStored(ConfigFile, d.Config)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrFolder, d.path, err)
	}
	lines, err := telemetry.ReadFrom(d.FS, MetricsFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(lines) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	reached, every := lines[len(lines)-1].Step, stored.Run.CheckpointEvery
	if every > 0 && reached > 2*every {
		return fmt.Errorf("%w %s: there is no checkpoint, but %s reaches step %d and one was due every %s; restore %s. To start from scratch, choose another run.out or move %s away",
			ErrFolder, d.path, MetricsFile, reached, steps(every), filepath.Join(d.path, checkpoint.StoreName), MetricsFile)
	}
	return nil
}

func steps(n int) string {
	if n == 1 {
		return "step"
	}
	return fmt.Sprintf("%d steps", n)
}

// setAside renames newer checkpoints and keeps a copy of the metrics,
// which are cut back. It returns warnings, even with an error.
func (d *Dir) setAside(from int64) (warnings []string, err error) {
	if len(d.aside) == 0 {
		return nil, nil
	}
	metrics, err := folder.CopyAside(d.FS, MetricsFile, checkpoint.SupersededSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keep a copy of %s: %w", d.FS.Path(MetricsFile), err)
	}
	var copies []string
	if metrics != "" {
		copies = append(copies, metrics)
	}
	for _, name := range []string{EventsFile, StatsFile, SamplesFile} {
		copied, err := folder.CopyAside(d.FS, name, checkpoint.SupersededSuffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, errors.Join(fmt.Errorf("keep a copy of %s: %w", d.FS.Path(name), err), d.remove(copies))
		default:
			copies = append(copies, copied)
		}
	}
	for _, a := range d.aside {
		path, err := d.Store.SetAside(a.step, a.suffix)
		switch {
		case err != nil && len(warnings) == 0 && d.has(a.step):
			return nil, errors.Join(err, d.remove(copies)) // nothing was changed
		case err != nil:
			return warnings, err
		case a.why != "":
			warnings = append(warnings, fmt.Sprintf("skipping a damaged checkpoint: %s; it was renamed to %s", a.why, path))
		default:
			warnings = append(warnings, fmt.Sprintf("the checkpoint of step %d was renamed to %s", a.step, path))
		}
	}
	text := fmt.Sprintf("training resumes from step %d", from)
	if d.aside[0].why != "" {
		text += ", the newest intact checkpoint"
	}
	if metrics != "" {
		text += fmt.Sprintf("; the metrics of all steps so far were copied to %s", d.FS.Path(metrics))
	}
	return append(warnings, text), nil
}

// remove removes copies that were made.
func (d *Dir) remove(names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, d.FS.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// has reports whether the checkpoint of a step still has its name.
func (d *Dir) has(step int) bool {
	steps, err := d.Store.Steps()
	return err == nil && slices.Contains(steps, step)
}

// clean removes unfinished files that a crash has left.
func (d *Dir) clean() error {
	entries, err := d.FS.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		for _, own := range []string{folder.TmpPrefix + ConfigFile, folder.TmpPrefix + MetricsFile, folder.TmpPrefix + EventsFile,
			folder.TmpPrefix + StatsFile, folder.TmpPrefix + SamplesFile, folder.TmpPrefix + ChangesFile,
			folder.TmpPrefix + AdapterFile, ProbePrefix} {
			if !strings.HasPrefix(e.Name(), own) {
				continue
			}
			if err := d.FS.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
	}
	return d.Store.Clean()
}
