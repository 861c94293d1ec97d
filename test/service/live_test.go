package service

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/infer/serve"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

var _ serve.Model = (*troupe.Live)(nil)

// TestLive: a run generates texts for several callers at once while it trains, and counts them.
func TestLive(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, "run.steps=1000000", "run.eval_every=0"))
	testrun.Until(t, run, testrun.Step(1))
	live := run.Live(troupe.SnapshotOptions{MaxSteps: 1 << 40})
	var all sync.WaitGroup
	texts := make([]string, 12)
	for i := range texts {
		all.Go(func() {
			var text strings.Builder
			if err := live.Generate(t.Context(), troupe.TextOptions{Prompt: "A", Tokens: 5, IgnoreEnd: true},
				func(b []byte) error { text.Write(b); return nil }); err != nil {
				t.Error(err)
			}
			texts[i] = text.String()
		})
	}
	all.Wait()
	for i, text := range texts {
		if text == "" || text != texts[0] {
			t.Errorf("text %d is %q, the first one %q: all are of one step", i, text, texts[0])
		}
	}
	if s := live.Stats(); s.Texts < 12 || s.Running != 0 || s.Tokens < 60 {
		t.Errorf("counts: %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := live.Generate(ctx, troupe.TextOptions{Prompt: "A", Tokens: 5}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	run.Stop()
	testrun.Finish(t, run)
}
