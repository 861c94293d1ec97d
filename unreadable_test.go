package troupe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/checkpoint/faultfs"
)

// checkpointFiles are those of a checkpoint that a run writes.
var checkpointFiles = []string{"config.json", "config.toml", "manifest.json", "model.safetensors", "optimizer.safetensors", "tokenizer.json", "trainer.json"}

// notStarted starts a run that must not begin, and must change nothing: what keeps it
// is in the error's chain, all of want in its text.
func notStarted(t *testing.T, out string, is error, want ...string) {
	t.Helper()
	_ = startError(t, out, is, want...)
}

// startError is notStarted for who wants to see more of the error.
func startError(t *testing.T, out string, is error, want ...string) error {
	t.Helper()
	before := tree(t, out)
	run, err := troupe.Start(context.Background(), newConfig(t, out, "run.steps=9"), troupe.Options{})
	if err == nil {
		at := run.Info().ResumedAt
		run.Kill()
		_, _ = run.Wait()
		t.Fatalf("it began, from step %d", at)
	}
	if !errors.Is(err, is) || errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("error %v is not %v", err, is)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q, want %q in it", err, text)
		}
	}
	if setup := new(troupe.SetupError); errors.As(err, &setup) == checkpoint.TryAgain(err) {
		t.Errorf("%v: a *SetupError is %v, and trying again may help %v", err, errors.As(err, &setup), checkpoint.TryAgain(err))
	}
	if after := tree(t, out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
	return err
}

// goesOn starts a run that has nothing left to train: it goes on from a step, without
// a warning.
func goesOn(t *testing.T, out string, step int) {
	t.Helper()
	run := start(t, newConfig(t, out))
	if at := run.Info().ResumedAt; at != step {
		t.Errorf("it goes on from step %d, want %d", at, step)
	}
	if _, events := finish(t, run); len(events) > 0 {
		t.Errorf("events %v", events)
	}
}

// TestUnreadable: a newest checkpoint that can't be read at the moment keeps a run
// from beginning, whichever of its files it is and whatever the reason. Nothing of the
// folder changes, and once it can be read the run goes on from it.
func TestUnreadable(t *testing.T) {
	out := trained(t)
	var fsys *faultfs.FS
	var faults = map[string]faultfs.Fault{}
	troupe.SetFS(t, func(under checkpoint.FS) checkpoint.FS {
		fsys = faultfs.New(under)
		for name, fault := range faults {
			fsys.Set(name, fault)
		}
		return fsys
	})
	before := tree(t, out)
	for _, name := range checkpointFiles {
		for _, kind := range []struct {
			name  string
			fault faultfs.Fault
			again bool
		}{
			{"permission", faultfs.Fault{Open: syscall.EACCES}, false},
			{"too many open files", faultfs.Fault{Open: syscall.EMFILE}, true},
			{"input/output error", faultfs.Fault{Read: syscall.EIO}, true},
			{"short read", faultfs.Fault{Short: true}, true},
		} {
			t.Run(kind.name+" of "+name, func(t *testing.T) {
				faults["checkpoints/step-00000006/"+name] = kind.fault
				err := startError(t, out, checkpoint.ErrUnreadable, name, stepDir(out, 6), "make it readable", "--from-step: there are [3]")
				if checkpoint.TryAgain(err) != kind.again {
					t.Errorf("trying again may help with %v: %v", err, !kind.again)
				}
				clear(faults)
				goesOn(t, out, 6)
			})
		}
	}
	for _, name := range []string{"config.toml", "metrics.jsonl", "checkpoints", "checkpoints/step-00000006"} {
		t.Run("the run's "+name, func(t *testing.T) {
			faults[name] = faultfs.Fault{Open: syscall.EMFILE}
			notStarted(t, out, checkpoint.ErrUnreadable, name)
			faults[name] = faultfs.Fault{Read: syscall.EIO}
			if strings.Contains(name, ".") {
				notStarted(t, out, checkpoint.ErrUnreadable, name)
				faults[name] = faultfs.Fault{Short: true}
				notStarted(t, out, checkpoint.ErrUnreadable, name)
			}
			clear(faults)
			goesOn(t, out, 6)
		})
	}
	if after := tree(t, out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
}

// TestNewerVersion: what a newer program has written is not passed over either.
func TestNewerVersion(t *testing.T) {
	out := trained(t)
	manifest := filepath.Join(stepDir(out, 6), "manifest.json")
	whole := read(t, manifest)
	write(t, manifest, strings.Replace(whole, `"format_version": 1`, `"format_version": 2`, 1))
	notStarted(t, out, checkpoint.ErrVersion, "manifest.json", "version 2, this program knows 1", "newer", "--from-step")
	write(t, manifest, whole)
	goesOn(t, out, 6)

	newer := copyTree(t, out)
	rewrite(t, newer, 6, func(files map[string][]byte) {
		files["trainer.json"] = []byte(strings.Replace(string(files["trainer.json"]), `"format_version": 2`, `"format_version": 3`, 1))
	})
	if report, err := checkpoint.Verify(stepDir(newer, 6)); err != nil || !report.Intact() {
		t.Fatalf("%v, %v", report, err)
	}
	notStarted(t, newer, checkpoint.ErrVersion, "trainer.json", "version 3, this program knows 2", "newer", "--from-step")
}

// TestMissing: a file that isn't there can be restored.
func TestMissing(t *testing.T) {
	out := trained(t)
	kept := filepath.Join(t.TempDir(), "kept")
	for _, name := range append([]string{""}, checkpointFiles...) {
		path := filepath.Join(stepDir(out, 6), name)
		if err := os.Rename(path, kept); err != nil {
			t.Fatal(err)
		}
		want := name
		if name == "" { // all of them
			want = "manifest.json"
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		notStarted(t, out, checkpoint.ErrMissing, want, stepDir(out, 6), "restore", "--from-step")
		if name == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(kept, path); err != nil {
			t.Fatal(err)
		}
		goesOn(t, out, 6)
	}
}

// TestDamageIsKept: damage to any file is passed over, and what was there is kept byte
// for byte where the warning says.
func TestDamageIsKept(t *testing.T) {
	want := trained(t)
	for _, name := range checkpointFiles {
		for kind, damage := range map[string]func(b []byte) []byte{
			"shorter": func(b []byte) []byte { return b[:len(b)-1] },
			"longer":  func(b []byte) []byte { return append(b, 0) },
			"a bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		} {
			t.Run(fmt.Sprintf("%s, %s", name, kind), func(t *testing.T) {
				out := copyTree(t, want)
				path := filepath.Join(stepDir(out, 6), name)
				write(t, path, string(damage([]byte(read(t, path)))))
				before := tree(t, stepDir(out, 6))
				run := start(t, newConfig(t, out))
				if at := run.Info().ResumedAt; at != 3 {
					t.Errorf("it goes on from step %d", at)
				}
				_, events := finish(t, run)
				warnings := eventsOf[troupe.WarningEvent](events)
				kept := stepDir(out, 6) + ".damaged"
				if len(warnings) == 0 || !strings.HasSuffix(warnings[0].Text, "kept as "+kept) {
					t.Errorf("warnings %v", warnings)
				}
				if after := tree(t, kept); after != before {
					t.Errorf("there was\n%skept is\n%s", before, after)
				}
				sameState(t, want, out, 6)
			})
		}
	}
}

// TestDamagedReplacement: a crash has left a checkpoint and the one that it was to
// replace. When the new one is damaged, the run goes on from the old one.
func TestDamagedReplacement(t *testing.T) {
	want := trained(t)
	out := copyTree(t, want)
	if err := os.Rename(stepDir(copyTree(t, want), 6), stepDir(out, 6)+".replaced"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(stepDir(out, 6), "trainer.json"), "{}")
	damaged := tree(t, stepDir(out, 6))
	result, _ := train(t, out)
	if result.Step != 6 || result.Dir != stepDir(out, 6) {
		t.Errorf("it ended at step %d with the checkpoint %s", result.Step, result.Dir)
	}
	sameState(t, want, out, 6)
	noneLeft(t, out)
	if kept := tree(t, stepDir(out, 6)+".damaged"); kept != damaged {
		t.Errorf("there was\n%skept is\n%s", damaged, kept)
	}
}

// TestRefusedAfterDamage: a start that is refused for another reason leaves a damaged
// checkpoint where it is.
func TestRefusedAfterDamage(t *testing.T) {
	out := trained(t)
	write(t, filepath.Join(stepDir(out, 6), "trainer.json"), "{}")
	refused(t, newConfig(t, out, "model.layers=5"), troupe.Options{}, troupe.ErrOutput, "model.layers")
	refused(t, newConfig(t, out, "pipeline.stages=2", "pipeline.schedule=none"), troupe.Options{}, nil, "pipeline.schedule")
}
