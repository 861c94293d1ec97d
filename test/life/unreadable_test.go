package life

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestNotStarted: what keeps a run from beginning leaves its folder as it is, and is a
// *SetupError unless trying again may help. What there is of it, the tests of
// internal/run/rundir go through.
func TestNotStarted(t *testing.T) {
	manifest := func(out string) string { return filepath.Join(testrun.StepDir(out, 6), "manifest.json") }
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, out string)
		fault   faultfs.Fault // of the newest checkpoint's weights
		is      error
		want    string
	}{
		{"may not be read", nil, faultfs.Fault{Open: syscall.EACCES}, checkpoint.ErrUnreadable, "model.safetensors"},
		{"can't be read now", nil, faultfs.Fault{Open: syscall.EMFILE}, checkpoint.ErrUnreadable, "model.safetensors"},
		{"is read short", nil, faultfs.Fault{Short: true}, checkpoint.ErrUnreadable, "model.safetensors"},
		{"is incomplete", func(t *testing.T, out string) {
			if err := os.Remove(manifest(out)); err != nil {
				t.Fatal(err)
			}
		}, faultfs.Fault{}, checkpoint.ErrMissing, "manifest.json"},
		{"is a newer program's", func(t *testing.T, out string) {
			testrun.Write(t, manifest(out), strings.Replace(testrun.Read(t, manifest(out)), `"format_version": 1`, `"format_version": 2`, 1))
		}, faultfs.Fault{}, checkpoint.ErrVersion, "version 2"},
		{"has vanished with all others", func(t *testing.T, out string) {
			testrun.Write(t, filepath.Join(out, "config.toml"), strings.Replace(testrun.Read(t, filepath.Join(out, "config.toml")),
				"checkpoint_every = 3", "checkpoint_every = 1", 1))
			if err := os.RemoveAll(filepath.Join(out, "checkpoints")); err != nil {
				t.Fatal(err)
			}
		}, faultfs.Fault{}, troupe.ErrOutput, "due every step"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := testrun.Trained(t)
			if tt.prepare != nil {
				tt.prepare(t, out)
			}
			before := testrun.Tree(t, out)
			testrun.SetFS(t, func(under checkpoint.FS) checkpoint.FS {
				fsys := faultfs.New(under)
				fsys.Set("checkpoints/step-00000006/model.safetensors", tt.fault)
				return fsys
			})
			run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, "run.steps=9"), troupe.Options{})
			if err == nil {
				at := run.Info().ResumedAt
				run.Kill()
				_, _ = run.Wait()
				t.Fatalf("it began, from step %d", at)
			}
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v is not %v with %q in it", err, tt.is, tt.want)
			}
			if setup := new(troupe.SetupError); errors.As(err, &setup) == checkpoint.TryAgain(err) {
				t.Errorf("%v: a *SetupError is %v, and trying again may help %v", err, errors.As(err, &setup), checkpoint.TryAgain(err))
			}
			if after := testrun.Tree(t, out); after != before {
				t.Errorf("the folder had\n%sit has\n%s", before, after)
			}
		})
	}
}

// TestRefusedAfterDamage: a start that is refused for another reason leaves a damaged
// checkpoint where it is.
func TestRefusedAfterDamage(t *testing.T) {
	out := testrun.Trained(t)
	testrun.Write(t, filepath.Join(testrun.StepDir(out, 6), "trainer.json"), "{}")
	testrun.Refused(t, testrun.NewConfig(t, out, "model.layers=5"), troupe.Options{}, troupe.ErrOutput, "model.layers")
	testrun.Refused(t, testrun.NewConfig(t, out, "pipeline.stages=2", "pipeline.schedule=none"), troupe.Options{}, nil, "pipeline.schedule")
}
