package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/telemetry"
)

// Beginning is the result of Begin: the open files.
type Beginning struct {
	Metrics     *telemetry.Writer
	Marks       *telemetry.MarkWriter
	Stats       *telemetry.StatsWriter
	Samples     *telemetry.SampleWriter
	LastValLoss *float64 // in the metrics so far; nil: none
	Warnings    []string
}

// Begin makes the first changes in the folder, after all checks have passed. It writes the configuration first
// if there is none, which marks the folder as the run's. It replaces an old one after
// cutting the metrics: see unsaved. resumes: start is the state of a
// checkpoint.
func (d *Dir) Begin(configTOML []byte, start trainstate.State, resumes bool) (b Beginning, err error) {
	if resumes { // else no line is kept
		if b.LastValLoss, err = d.lastValLoss(metricsCut(start)); err != nil {
			return b, err
		}
	}
	d.Begun = true
	writeConfig := func() error { return checkpoint.WriteFileAtomic(d.FS, ConfigFile, configTOML) }
	if d.Config == nil {
		if err := writeConfig(); err != nil {
			return b, err
		}
	}
	if resumes { // before newer checkpoints are renamed: see checkpoint.Store.Newest
		if err := d.Store.SetLast(int(start.Step)); err != nil {
			return b, err
		}
	}
	b.Warnings, err = d.setAside(start.Step)
	if err == nil {
		err = d.setBestAside(start.Step, &b)
	}
	defer func() {
		if err != nil && len(b.Warnings) > 0 { // the caller sends no events after an error
			err = fmt.Errorf("%w\n%s", err, strings.Join(b.Warnings, "\n"))
		}
	}()
	if err == nil {
		err = d.clean()
	}
	if err == nil {
		err = d.cutChanges(start.Step)
	}
	if err != nil {
		return b, fmt.Errorf("%w %s: %w", ErrFolder, d.path, err)
	}
	if b.Metrics, err = telemetry.OpenWriter(d.FS, MetricsFile, metricsCut(start)); err != nil {
		return b, err
	}
	// Events before the first step are kept, even if the run starts again.
	if b.Marks, err = telemetry.OpenMarks(d.FS, EventsFile, int(start.Step)); err != nil {
		return b, err
	}
	if b.Stats, err = telemetry.OpenStats(d.FS, StatsFile, metricsCut(start)); err != nil {
		return b, err
	}
	if b.Samples, err = telemetry.OpenSamples(d.FS, SamplesFile, metricsCut(start)); err != nil {
		return b, err
	}
	if d.Config != nil {
		if err := writeConfig(); err != nil {
			return b, err
		}
	}
	if !resumes {
		return b, nil
	}
	return b, d.point(start)
}

// lastValLoss returns the last validation loss in the metrics up to a step.
func (d *Dir) lastValLoss(upTo int) (last *float64, err error) {
	lines, err := telemetry.ReadFrom(d.FS, MetricsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, r := range lines {
		if r.Step <= upTo && r.ValLoss != nil {
			last = r.ValLoss
		}
	}
	return last, nil
}

// metricsCut is the last step whose line is kept: none for a new run.
func metricsCut(start trainstate.State) int {
	if start.Step == 0 {
		return -1
	}
	return int(start.Step)
}

// setBestAside renames the best weights of steps after the one that the user goes back to.
func (d *Dir) setBestAside(from int64, b *Beginning) error {
	if !d.byName {
		return nil
	}
	paths, err := d.Store.SetBestAside(int(from))
	for _, path := range paths {
		b.Warnings = append(b.Warnings, "the best weights of a later step were renamed to "+path)
	}
	return err
}

// point sets `best` for the checkpoint that the run resumes from: a crash may have prevented that, or it may
// point to a renamed checkpoint.
func (d *Dir) point(state trainstate.State) error {
	if state.BestStep > 0 && !d.noBest {
		err := d.Store.PointBest(int(state.BestStep))
		if err == nil {
			err = d.Store.PruneBest(int(state.BestStep)) // the run computes later ones again
		}
		if !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
		// It was removed after a better one, which is gone, too.
	}
	return d.Store.DropBest()
}
