package rundir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
)

// TestBaseOfStart: a run that was killed before its first checkpoint knows its base.
func TestBaseOfStart(t *testing.T) {
	t.Chdir(t.TempDir())
	d, err := rundir.Open(newConfig(t, "out"), false)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	was, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	must(t, d.CheckBase("base", was))
	must(t, d.NoteBase(&stages.Adapter{Rank: 4}, rundir.Base{From: "base", SHA256: was}))
	must(t, d.CheckBase("moved", was))
	if err := d.CheckBase("base", other); !errors.Is(err, rundir.ErrBase) || !strings.Contains(err.Error(), was) ||
		!strings.Contains(err.Error(), other) {
		t.Errorf("another base: %v", err)
	}
	must(t, os.WriteFile(filepath.Join("out", rundir.AdapterFile), []byte("{"), 0o600))
	if err := d.CheckBase("base", was); err == nil || !strings.Contains(err.Error(), rundir.AdapterFile) {
		t.Errorf("a damaged file: %v", err)
	}
}
