package logring

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/wire"
)

// TestLogHandler: records from Info on go to the sink, with their attributes as text.
func TestLogHandler(t *testing.T) {
	var got []*wire.LogRecord
	log := slog.New(NewHandler(slog.DiscardHandler, "p", func(r *wire.LogRecord) { got = append(got, r) }))
	log.With("run", "x").WithGroup("g").Warn("text", "n", 5, slog.Group("h", "s", "a b"))
	log.Debug("not this")
	want := `level:4 process:"p" text:"text" attributes:{key:"run" value:"x"} attributes:{key:"g.n" value:"5"} attributes:{key:"g.h.s" value:"a b"}`
	if len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	got[0].TimeNs = 0
	if text := strings.Join(strings.Fields(fmt.Sprint(got[0])), " "); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
	if !OfRun(got[0], "y", "x") || OfRun(got[0], "z") {
		t.Error("it is of run x alone")
	}
}
