package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

// logRing keeps the last records of the logs of a cluster's processes.
type logRing struct {
	mu        sync.Mutex
	records   []*wire.LogRecord
	bytes     int    // of all of them, as they are encoded
	dropped   uint64 // by workers, for want of room
	followers map[*logFollower]struct{}
}

// logFollower is one who gets records as they come.
type logFollower struct {
	batches chan []*wire.LogRecord // closed when it was too slow
}

func newLogRing() *logRing { return &logRing{followers: make(map[*logFollower]struct{})} }

// add keeps records, and passes them on.
func (l *logRing) add(records []*wire.LogRecord, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped += dropped
	for _, r := range records {
		l.records = append(l.records, r)
		l.bytes += proto.Size(r)
	}
	for len(l.records) > limitLogRecords || l.bytes > limitLogBytes {
		l.bytes -= proto.Size(l.records[0])
		l.records[0] = nil
		l.records = l.records[1:]
	}
	for f := range l.followers {
		select {
		case f.batches <- records:
		default:
			delete(l.followers, f)
			close(f.batches)
		}
	}
}

// follow gives the records so far, by time, and with a follower those to come.
func (l *logRing) follow(live bool) (records []*wire.LogRecord, dropped uint64, f *logFollower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	records = inOrder(l.records)
	if live {
		f = &logFollower{batches: make(chan []*wire.LogRecord, limitFollowerBatches)}
		l.followers[f] = struct{}{}
	}
	return records, l.dropped, f
}

// inOrder merges the records of all processes by time. Those of a process stay in the order in which they
// came: where somebody has set its clock back, they count as later than all before.
func inOrder(records []*wire.LogRecord) []*wire.LogRecord {
	type dated struct {
		at int64
		*wire.LogRecord
	}
	latest := make(map[string]int64)
	all := make([]dated, len(records))
	for i, r := range records {
		at := r.GetTimeNs()
		if was, ok := latest[r.GetProcess()]; ok {
			at = max(at, was)
		}
		latest[r.GetProcess()] = at
		all[i] = dated{at, r}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	sorted := make([]*wire.LogRecord, len(all))
	for i, d := range all {
		sorted[i] = d.LogRecord
	}
	return sorted
}

// leave ends a follower.
func (l *logRing) leave(f *logFollower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, f)
}

// logHandler writes a log, and gives its records from Info on to a sink.
type logHandler struct {
	next       slog.Handler
	sink       func(*wire.LogRecord)
	process    string
	attributes []*wire.LogAttribute
	group      string
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		w := &wire.LogRecord{TimeNs: r.Time.UnixNano(), Level: int32(r.Level), Process: h.process, Text: clean(r.Message, limitLogTextBytes), Attributes: slices.Clone(h.attributes)} //nolint:gosec // slog's levels
		r.Attrs(func(a slog.Attr) bool {
			w.Attributes = appendAttribute(w.Attributes, h.group, a)
			return len(w.Attributes) < limitLogAttributes
		})
		h.sink(w)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	own.next, own.attributes = h.next.WithAttrs(attrs), slices.Clone(h.attributes)
	for _, a := range attrs {
		own.attributes = appendAttribute(own.attributes, h.group, a)
	}
	return &own
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	own := *h
	own.next, own.group = h.next.WithGroup(name), h.group+name+"."
	return &own
}

// appendAttribute adds an attribute as text, a group as its members.
func appendAttribute(to []*wire.LogAttribute, group string, a slog.Attr) []*wire.LogAttribute {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range value.Group() {
			to = appendAttribute(to, group, member)
		}
		return to
	}
	if len(to) >= limitLogAttributes || a.Equal(slog.Attr{}) {
		return to
	}
	return append(to, &wire.LogAttribute{Key: clean(group+a.Key, limitNameBytes), Value: clean(value.String(), limitLogValueBytes)})
}

// ofRun reports whether a record is about a run.
func ofRun(r *wire.LogRecord, ids ...string) bool {
	for _, a := range r.GetAttributes() {
		if a.GetKey() == "run" && slices.Contains(ids, a.GetValue()) {
			return true
		}
	}
	return false
}
