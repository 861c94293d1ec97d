package cli

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry"
)

// localLogs passes the events of a run on this machine to print, from a time on. follow: until the run has ended.
func localLogs(ctx context.Context, dir string, from time.Time, follow bool, print func([]cluster.LogRecord, uint64) error) (err error) {
	fsys, err := checkpoint.OpenFS(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	var read []cluster.LogRecord
	in := rundir.NewReader(fsys, rundir.ReaderOptions{Forget: func() {}, Mark: func(m telemetry.Mark) {
		if at := time.UnixMilli(m.TimeMS); !at.Before(from) {
			read = append(read, logRecord(filepath.Base(dir), m))
		}
	}})
	for {
		who, err := checkpoint.Holder(dir) // before the events: then all are there if nobody has the run
		if err == nil {
			err = in.ReadEvents()
		}
		if err == nil {
			err = print(read, 0)
		}
		if read = nil; err != nil || !follow || who == "" {
			return err
		}
		select {
		case <-time.After(lookLongest):
		case <-ctx.Done():
			return nil
		}
	}
}

// logRecord is an event of a run as a record of a log.
func logRecord(run string, m telemetry.Mark) cluster.LogRecord {
	r := cluster.LogRecord{Time: time.UnixMilli(m.TimeMS), Level: slog.LevelInfo, Process: run, Text: m.Text,
		Attributes: [][2]string{{"kind", m.Kind}, {"step", strconv.Itoa(m.Step)}}}
	if r.Text == "" {
		r.Text = m.Kind
	}
	if m.Warns() {
		r.Level = slog.LevelWarn
	}
	if _, failed := m.Failure(); failed {
		r.Level = slog.LevelError
	}
	return r
}
