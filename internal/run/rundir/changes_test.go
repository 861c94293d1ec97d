package rundir_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestChangesSurvive: what is journalled is there for the next start; one that goes back by
// name keeps what lies behind it aside.
func TestChangesSurvive(t *testing.T) {
	out := trained(t)
	l, err := begin(newConfig(t, out), 0)
	must(t, err)
	early, late := event.Change{Kind: event.ChangeRate, Step: 2, LR: 1, MinLR: 0.5}, event.Change{Kind: event.ChangePause, Step: 5}
	must(t, l.dir.WriteChange(early))
	must(t, l.dir.WriteChange(late))
	must(t, l.end())
	l, err = begin(newConfig(t, out), 0)
	must(t, err)
	if got := l.dir.Changes(); !reflect.DeepEqual(got, []event.Change{early, late}) {
		t.Errorf("they are %v", got)
	}
	must(t, l.end())
	l, err = begin(newConfig(t, out), 3)
	must(t, err)
	if got := l.dir.Changes(); !reflect.DeepEqual(got, []event.Change{early}) {
		t.Errorf("back at step 3 they are %v", got)
	}
	must(t, l.end())
	if kept := read(t, filepath.Join(out, rundir.ChangesFile+".superseded")); !strings.Contains(kept, "pause") {
		t.Errorf("kept is %s", kept)
	}
	must(t, os.WriteFile(filepath.Join(out, rundir.ChangesFile), []byte(strings.Repeat(`{"kind":"pause","step":2}`+"\n", 10_000)), 0o600))
	l, err = begin(newConfig(t, out), 0)
	must(t, err)
	if err := l.dir.WriteChange(early); !errors.Is(err, event.ErrJournal) || len(l.dir.Changes()) != 10_000 {
		t.Errorf("a full journal with %d changes: %v", len(l.dir.Changes()), err)
	}
	must(t, l.end())
	must(t, os.WriteFile(filepath.Join(out, rundir.ChangesFile), []byte("{"), 0o600))
	if _, err := begin(newConfig(t, out), 0); err == nil || !strings.Contains(err.Error(), rundir.ChangesFile+": row 1") {
		t.Errorf("a damaged journal: %v", err)
	}
}
