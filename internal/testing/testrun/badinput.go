package testrun

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

// Refused starts a run that must fail with a *SetupError: its chain must contain is (unless nil), its text all of
// want, and the output folder must stay unchanged.
func Refused(t *testing.T, cfg *config.Config, o troupe.Options, is error, want ...string) {
	t.Helper()
	before := Tree(t, cfg.Run.Out)
	run, err := troupe.Start(context.Background(), cfg, o)
	if err == nil {
		run.Kill()
		_, err = run.Wait()
		t.Fatalf("it began, and ended with %v", err)
	}
	if setup := new(troupe.SetupError); !errors.As(err, &setup) {
		t.Errorf("%v is no *SetupError", err)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v is not %v", err, is)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q, want %q in it", err, text)
		}
	}
	if after := Tree(t, cfg.Run.Out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
}

// Trained returns the folder of a finished run of SmallRun.
func Trained(t *testing.T, sets ...string) (out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "out")
	Train(t, out, sets...)
	return out
}
