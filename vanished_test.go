package troupe_test

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
)

// TestVanished: that a checkpoint is not there at all, as on a disk that is not mounted,
// is no reason to go on from an older one, or from scratch, where it is known that there
// was one.
func TestVanished(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove string // in the folder checkpoints
		is     error
		want   []string
	}{
		{"the newest", "step-00000006", checkpoint.ErrMissing, []string{"last points to step 6", "restore", "--from-step: there are [1 2 3 4 5]"}},
		{"all but the pointers", "step-*", checkpoint.ErrMissing, []string{"last points to step 6", "restore"}},
		{"all", "*", troupe.ErrOutput, []string{"reaches step 6", "every step", "restore", "move metrics.jsonl away"}},
		{"their folder", "", troupe.ErrOutput, []string{"reaches step 6", "every step", "restore", "move metrics.jsonl away"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t, "run.checkpoint_every=1")
			gone, err := filepath.Glob(filepath.Join(out, "checkpoints", tt.remove))
			if err != nil || len(gone) == 0 {
				t.Fatalf("%v, %v", gone, err)
			}
			for _, path := range gone {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			notStarted(t, out, tt.is, tt.want...)
		})
	}
}

// TestNoCheckpointYet: a run that ended before its first checkpoint begins from scratch,
// even with lines up to where the second one was due.
func TestNoCheckpointYet(t *testing.T) {
	out := trained(t)
	want := copyTree(t, out)
	if err := os.RemoveAll(filepath.Join(out, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	run := start(t, newConfig(t, out))
	if at := run.Info().ResumedAt; at != 0 {
		t.Errorf("it goes on from step %d", at)
	}
	finish(t, run)
	sameFigures(t, want, out)
	sameState(t, want, out, 6)
}

// TestPointerIsFolder: what can't be replaced by a pointer is refused before anything is
// changed.
func TestPointerIsFolder(t *testing.T) {
	for _, name := range []string{"last", "best"} {
		out := trained(t)
		write(t, filepath.Join(stepDir(out, 6), "trainer.json"), "{}") // it would be set aside
		path := filepath.Join(out, "checkpoints", name)
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		notStarted(t, out, checkpoint.ErrUnreadable, path, "remove it")
	}
}

// failing fails at some operations.
type failing struct {
	checkpoint.FS
	create, rename func(name string) error
}

func (f failing) Create(name string) (checkpoint.File, error) {
	if err := f.create(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name)
}

func (f failing) Rename(from, to string) error {
	if err := f.rename(from); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// TestStartCutShort: a disk that is full is told as such, whatever was to be written when
// a run begins, a start that fails leaves no copies behind, and the next one goes on.
func TestStartCutShort(t *testing.T) {
	never := func(string) error { return nil }
	at := func(pattern string, err error) func(string) error {
		return func(name string) error {
			if ok, _ := path.Match(pattern, name); ok {
				return &os.PathError{Op: "write", Path: name, Err: err}
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name      string
		fs        failing
		full      bool
		unchanged bool
	}{
		{"the copy of the metrics", failing{create: at(".tmp-metrics.jsonl.superseded", syscall.ENOSPC), rename: never}, true, true},
		{"the cut of the metrics", failing{create: at(".tmp-metrics.jsonl", syscall.ENOSPC), rename: never}, true, false},
		{"the configuration", failing{create: at(".tmp-config.toml", syscall.ENOSPC), rename: never}, true, false},
		{"checkpoints that may not be renamed", failing{create: never, rename: at("checkpoints/step-*", syscall.EACCES)}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t)
			want := copyTree(t, out)
			write(t, filepath.Join(stepDir(out, 6), "trainer.json"), "{}")
			before := tree(t, out)
			troupe.SetFS(t, func(under checkpoint.FS) checkpoint.FS {
				tt.fs.FS = under
				return tt.fs
			})
			_, err := troupe.Start(context.Background(), newConfig(t, out), troupe.Options{})
			setup := new(troupe.SetupError)
			if err == nil || errors.Is(err, checkpoint.ErrNoSpace) != tt.full || errors.As(err, &setup) {
				t.Errorf("error %v", err)
			}
			if after := tree(t, out); tt.unchanged && strings.Replace(after, "last L--------- → step-00000003", "last L--------- → step-00000006", 1) != before {
				t.Errorf("the folder had\n%sit has\n%s", before, after)
			}
			troupe.SetFS(t, func(under checkpoint.FS) checkpoint.FS { return under })
			train(t, out)
			sameFigures(t, want, out)
			sameState(t, want, out, 6)
		})
	}
}
