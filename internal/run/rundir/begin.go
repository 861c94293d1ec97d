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

// Beginning is what Begin found and opened.
type Beginning struct {
	Metrics     *telemetry.Writer
	Marks       *telemetry.MarkWriter
	Stats       *telemetry.StatsWriter
	Samples     *telemetry.SampleWriter
	LastValLoss *float64 // in the metrics so far; nil: there was no validation
	Warnings    []string
}

// Begin writes to the folder, now that everything is accepted. The configuration comes first
// where there is none: by it the folder is known as the run's. An old one is replaced when
// the metrics, which go by it, are cut: see unsaved. resumes says that start is a
// checkpoint's.
func (d *Dir) Begin(configTOML []byte, start trainstate.State, resumes bool) (b Beginning, err error) {
	if resumes { // else no line stays, and unsaved has read them
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
	if resumes { // before anything newer is set aside: see checkpoint.Store.Newest
		if err := d.Store.SetLast(int(start.Step)); err != nil {
			return b, err
		}
	}
	b.Warnings, err = d.setAside(start.Step)
	defer func() {
		if err != nil && len(b.Warnings) > 0 { // nobody will read the events
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
	// What happened before the first step stays, also where the run begins anew.
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

// lastValLoss is the last one in the metrics up to a step.
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

// metricsCut is the last step whose line stays: none for a fresh start.
func metricsCut(start trainstate.State) int {
	if start.Step == 0 {
		return -1
	}
	return int(start.Step)
}

// point sets `best` for a checkpoint that the run goes on from: a crash may have come
// before it, or newer checkpoints are aside.
func (d *Dir) point(state trainstate.State) error {
	if state.BestStep > 0 {
		if err := d.Store.SetBest(int(state.BestStep)); !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
		// It was removed when a better one came, of which nothing is left.
	}
	return d.Store.DropBest()
}
