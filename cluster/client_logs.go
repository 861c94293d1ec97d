package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
)

// LogRecord is a line of a process's log. Its time is on the coordinator's clock.
type LogRecord struct {
	Time       time.Time
	Level      slog.Level
	Process    string // a worker's name, or "coordinator"
	Text       string
	Attributes [][2]string
	Offset     time.Duration // how far the process's clock is ahead; Time is corrected by it
}

// Logs calls show with the log records of a run since a time; run "" means all records. With follow
// it continues with new records until ctx ends. dropped counts records that were discarded because
// a queue was full.
func (c *Client) Logs(ctx context.Context, run string, since time.Time, follow bool,
	show func(records []LogRecord, dropped uint64) error) error {
	request := &wire.LogsRequest{Run: run, Follow: follow}
	if !since.IsZero() {
		request.SinceNs = since.UnixNano()
	}
	k, err := c.call(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Logs{Logs: request}})
	if err != nil {
		return err
	}
	defer k.close()
	defer c.keep(ctx)()
	for first := true; ; first = false {
		m, err := k.next()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && !follow && !first && errors.Is(err, ErrLost): // the coordinator has sent all
			return nil
		case err != nil:
			return err
		}
		var records []LogRecord
		for _, w := range m.GetLogs().GetRecords() {
			r := LogRecord{Time: time.Unix(0, w.GetTimeNs()), Level: slog.Level(w.GetLevel()), Process: w.GetProcess(), Text: w.GetText(),
				Offset: time.Duration(w.GetOffsetNs())}
			for _, a := range w.GetAttributes() {
				r.Attributes = append(r.Attributes, [2]string{a.GetKey(), a.GetValue()})
			}
			records = append(records, r)
		}
		if err := show(records, m.GetLogs().GetDropped()); err != nil {
			return err
		}
	}
}
