package transport

import (
	"context"
	"log/slog"
)

// SystemLogger is for actor.WithLoggerFactory of the system that a transport is given:
// protoactor logs each connection several times, as often as others like, and what matters of
// it the transport logs itself. What is left are warnings of everything but connections.
func SystemLogger(logger *slog.Logger) *slog.Logger {
	return slog.New(quietHandler{logger.Handler()})
}

type quietHandler struct{ slog.Handler }

// chatter are attributes of lines about connections.
var chatter = map[string]bool{"address": true, "fromAddress": true}

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	about := false
	r.Attrs(func(a slog.Attr) bool {
		about = about || chatter[a.Key]
		return !about
	})
	if about {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
