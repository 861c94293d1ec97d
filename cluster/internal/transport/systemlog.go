package transport

import (
	"context"
	"log/slog"
)

// SystemLogger returns a logger for actor.WithLoggerFactory of a transport's actor system. protoactor
// logs each connection several times, so other processes could fill the log. SystemLogger keeps only
// warnings that are not about connections; the transport logs those itself.
func SystemLogger(logger *slog.Logger) *slog.Logger {
	return slog.New(quietHandler{logger.Handler()})
}

type quietHandler struct{ slog.Handler }

// chatter lists the attributes of log lines about connections.
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
