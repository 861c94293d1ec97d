package logring

import (
	"context"
	"log/slog"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Handler passes log records to another handler, and those from level Info on to a sink as well.
type Handler struct {
	next       slog.Handler
	sink       func(*wire.LogRecord)
	process    string
	attributes []*wire.LogAttribute
	group      string
}

// NewHandler makes a handler for the log of a process. It passes records to next, and those from level Info on to sink.
func NewHandler(next slog.Handler, process string, sink func(*wire.LogRecord)) *Handler {
	return &Handler{next: next, process: process, sink: sink}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		w := &wire.LogRecord{TimeNs: r.Time.UnixNano(), Level: int32(r.Level), Process: h.process, Text: words.Cut(r.Message, limitTextBytes),
			Attributes: slices.Clone(h.attributes)}
		r.Attrs(func(a slog.Attr) bool {
			w.Attributes = appendAttribute(w.Attributes, h.group, a)
			return len(w.Attributes) < limitAttributes
		})
		h.sink(w)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *h
	own.next, own.attributes = h.next.WithAttrs(attrs), slices.Clone(h.attributes)
	for _, a := range attrs {
		own.attributes = appendAttribute(own.attributes, h.group, a)
	}
	return &own
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	own := *h
	own.next, own.group = h.next.WithGroup(name), h.group+name+"."
	return &own
}

// appendAttribute appends an attribute as text; of a group it appends the members.
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
	if len(to) >= limitAttributes || a.Equal(slog.Attr{}) {
		return to
	}
	return append(to, &wire.LogAttribute{Key: words.Cut(group+a.Key, limitKeyBytes), Value: words.Cut(value.String(), limitValueBytes)})
}
