package rundir_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// checkpointFiles are those of a checkpoint that a run writes.
var checkpointFiles = []string{"config.json", "config.toml", "manifest.json", "model.safetensors", "optimizer.safetensors",
	"tokenizer.json", "trainer.json"}

// TestResume: what a run goes on from is all that its newest checkpoint holds, and going
// on from it changes nothing.
func TestResume(t *testing.T) {
	out := trained(t)
	if names := list(t, stepDir(out, 6)); !slices.Equal(names, checkpointFiles) {
		t.Errorf("a checkpoint has the files %v, these tests know %v", names, checkpointFiles)
	}
	before := tree(t, out)
	for range 2 {
		l := goesOn(t, newConfig(t, out), 0, 6)
		if l.state.BestStep != 6 || l.back.Tokenizer != (tokenizer.Bytes{}) || l.back.Checkpoint.Dir() != stepDir(out, 6) ||
			len(l.warnings()) > 0 {
			t.Errorf("%+v, %v, warnings %q", l.state, l.back.Tokenizer, l.warnings())
		}
		same(t, before, tree(t, out))
	}
}

// TestUnreadable: a newest checkpoint that can't be read at the moment keeps a run from
// beginning, whichever of its files it is and whatever the reason. Nothing of the folder
// changes, and once it can be read the run goes on from it.
func TestUnreadable(t *testing.T) {
	out := trained(t)
	faults := map[string]faultfs.Fault{}
	through(t, func(under checkpoint.FS) checkpoint.FS {
		f := faultfs.New(under)
		for name, fault := range faults {
			f.Set(name, fault)
		}
		return f
	})
	kinds := []struct {
		name  string
		fault faultfs.Fault
		again bool
	}{
		{"permission", faultfs.Fault{Open: syscall.EACCES}, false},
		{"too many open files", faultfs.Fault{Open: syscall.EMFILE}, true},
		{"input/output error", faultfs.Fault{Read: syscall.EIO}, true},
		{"short read", faultfs.Fault{Short: true}, true},
	}
	check := func(t *testing.T, name string, fault faultfs.Fault, again bool, want ...string) {
		t.Helper()
		faults[name] = fault
		err := refusal(t, newConfig(t, out), 0, checkpoint.ErrUnreadable, append(want, filepath.Dir(filepath.Join(out, name)),
			filepath.Base(name))...)
		if checkpoint.TryAgain(err) != again {
			t.Errorf("trying again may help with %v: %v", err, !again)
		}
		clear(faults)
		goesOn(t, newConfig(t, out), 0, 6)
	}
	for _, kind := range kinds {
		for _, name := range checkpointFiles {
			t.Run(kind.name+" of "+name, func(t *testing.T) {
				check(t, "checkpoints/step-00000006/"+name, kind.fault, kind.again, "make it readable", "--from-step (available: 3)")
			})
		}
		for _, name := range []string{"config.toml", "metrics.jsonl"} {
			t.Run(kind.name+" of the run's "+name, func(t *testing.T) { check(t, name, kind.fault, kind.again) })
		}
		if kind.fault.Open != nil {
			for _, name := range []string{"checkpoints", "checkpoints/step-00000006"} {
				t.Run(kind.name+" of the run's "+name, func(t *testing.T) { check(t, name, kind.fault, kind.again) })
			}
		}
	}
}

// TestMissing: a file that isn't there can be restored.
func TestMissing(t *testing.T) {
	out := trained(t)
	kept := filepath.Join(memoryDir(t), "kept")
	for _, name := range checkpointFiles {
		path := filepath.Join(stepDir(out, 6), name)
		must(t, os.Rename(path, kept))
		refused(t, newConfig(t, out), 0, checkpoint.ErrMissing, name, stepDir(out, 6), "restore", "--from-step (available: 3)")
		must(t, os.Rename(kept, path))
		goesOn(t, newConfig(t, out), 0, 6)
	}
	must(t, errors.Join(os.Rename(stepDir(out, 6), kept), os.Mkdir(stepDir(out, 6), 0o755)))
	refused(t, newConfig(t, out), 0, checkpoint.ErrMissing, "manifest.json", stepDir(out, 6), "restore", "--from-step")
}

// TestNewerVersion: what a newer program has written is not passed over, whichever of its
// files says so.
func TestNewerVersion(t *testing.T) {
	out := trained(t)
	manifest := filepath.Join(stepDir(out, 6), "manifest.json")
	whole := read(t, manifest)
	write(t, manifest, strings.Replace(whole, `"format_version": 1`, `"format_version": 2`, 1))
	refused(t, newConfig(t, out), 0, checkpoint.ErrVersion, "manifest.json", "version 2, but this program knows only 1", "newer",
		"--from-step (available: 3)")
	write(t, manifest, whole)
	goesOn(t, newConfig(t, out), 0, 6)

	rewrite(t, out, 6, func(files map[string][]byte) {
		files["trainer.json"] = []byte(`{"format_version": 3}`)
	})
	refused(t, newConfig(t, out), 0, checkpoint.ErrVersion, stepDir(out, 6), "trainer.json",
		"it has version 3, but this program knows versions up to 2", "newer",
		"--from-step (available: 3)")
}

// rewrite saves a checkpoint once more, whole, with other files.
func rewrite(t testing.TB, out string, step int, change func(files map[string][]byte)) {
	t.Helper()
	c := checkpoint.Content{Step: step, Files: map[string][]byte{}}
	for _, name := range list(t, stepDir(out, step)) {
		if !strings.HasSuffix(name, ".safetensors") && name != "manifest.json" {
			c.Files[name] = []byte(read(t, filepath.Join(stepDir(out, step), name)))
		}
	}
	c.Model = []safetensors.Tensor{safetensors.F32("w", []int{3}, saved(step)[1].Data)}
	change(c.Files)
	fsys, err := checkpoint.OpenFS(out)
	must(t, err)
	store, err := checkpoint.OpenStore(fsys, ".")
	must(t, err)
	_, err = store.Save(context.Background(), c)
	must(t, errors.Join(err, fsys.Close()))
}

// TestTrainerState: a checkpoint that is whole, and that a run can't go on from
// nevertheless, is named with the reason.
func TestTrainerState(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(files map[string][]byte)
		want   string
	}{
		"no trainer.json": {func(f map[string][]byte) { delete(f, "trainer.json") }, "trainer.json"},
		"no JSON":         {func(f map[string][]byte) { f["trainer.json"] = []byte("step = 6") }, "trainer.json: invalid character"},
		"another order of windows": {func(f map[string][]byte) { f["trainer.json"] = []byte(`{"format_version": 1}`) },
			"format version 1: that version drew training windows with replacement"},
		"a tokenizer that is none": {func(f map[string][]byte) { f["tokenizer.json"] = []byte("{}") }, "tokenizer"},
	} {
		t.Run(name, func(t *testing.T) {
			out := trained(t)
			rewrite(t, out, 6, tt.change)
			before := tree(t, out)
			l, err := begin(newConfig(t, out), 0)
			if err == nil {
				t.Fatalf("it began, %v", l.end())
			}
			if l.dir.Begun || !strings.HasPrefix(err.Error(), "checkpoint "+stepDir(out, 6)+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			same(t, before, tree(t, out))
		})
	}
}

// TestNoTokenizer: a run of ids that another program has written has none.
func TestNoTokenizer(t *testing.T) {
	out := trained(t)
	rewrite(t, out, 6, func(f map[string][]byte) { delete(f, "tokenizer.json") })
	if l := goesOn(t, newConfig(t, out), 0, 6); l.back.Tokenizer != nil {
		t.Errorf("the tokenizer is %v", l.back.Tokenizer)
	}
}

// TestDamageIsKept: damage to any file is passed over, and what was there is kept byte for
// byte where the warning says, with the metrics.
func TestDamageIsKept(t *testing.T) {
	want := trained(t)
	for _, name := range checkpointFiles {
		for kind, damage := range map[string]func(b []byte) []byte{
			"shorter": func(b []byte) []byte { return b[:len(b)-1] },
			"longer":  func(b []byte) []byte { return append(b, 0) },
			"a bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		} {
			t.Run(fmt.Sprintf("%s, %s", name, kind), func(t *testing.T) {
				out := copyOf(t, want)
				path := filepath.Join(stepDir(out, 6), name)
				write(t, path, string(damage([]byte(read(t, path)))))
				before, metrics := tree(t, stepDir(out, 6)), read(t, filepath.Join(out, "metrics.jsonl"))
				l := goesOn(t, newConfig(t, out), 0, 3)
				kept, keptMetrics := stepDir(out, 6)+".damaged", filepath.Join(out, "metrics.jsonl.superseded")
				w := l.warnings()
				if len(w) != 2 || !strings.HasPrefix(w[0], "skipping a damaged checkpoint: "+stepDir(out, 6)+": ") ||
					!strings.HasSuffix(w[0], "it was renamed to "+kept) ||
					w[1] != "training resumes from step 3, the newest intact checkpoint; the metrics of all steps so far were copied to "+keptMetrics {
					t.Errorf("warnings %q", w)
				}
				same(t, before, tree(t, kept))
				if read(t, keptMetrics) != metrics {
					t.Errorf("the metrics that are kept are\n%s", read(t, keptMetrics))
				}
				if names := list(t, out, "checkpoints"); !slices.Equal(names, []string{"best", "last", "step-00000003", "step-00000006.damaged"}) {
					t.Errorf("the checkpoints are %v", names)
				}
				if last, best := pointer(t, out, "last"), pointer(t, out, "best"); last != "step-00000003" || best != last {
					t.Errorf("last is %q, best %q", last, best)
				}
				if left := steps(t, out); !slices.Equal(left, upTo(3)) || *l.begun.LastValLoss != *record(3, true).ValLoss {
					t.Errorf("the metrics have the steps %v, the last validation gave %v", left, *l.begun.LastValLoss)
				}
			})
		}
	}
}

// TestDamagedTwice: what is kept from one damage is not replaced by what is kept from the
// next.
func TestDamagedTwice(t *testing.T) {
	out := trained(t)
	var kept []string
	for range 2 {
		flip(t, filepath.Join(stepDir(out, 6), "model.safetensors"))
		kept = append(kept, tree(t, stepDir(out, 6)))
		live(t, newConfig(t, out), 0)
	}
	same(t, kept[0], tree(t, stepDir(out, 6)+".damaged"))
	same(t, kept[1], tree(t, stepDir(out, 6)+".damaged-2"))
	if names := list(t, out); !slices.Contains(names, "metrics.jsonl.superseded") || !slices.Contains(names, "metrics.jsonl.superseded-2") {
		t.Errorf("the folder has %v", names)
	}
	if all := steps(t, out); !slices.Equal(all, upTo(6)) {
		t.Errorf("the metrics have the steps %v", all)
	}
}

// TestAllDamaged: none of them is given up by itself.
func TestAllDamaged(t *testing.T) {
	out := trained(t)
	for _, step := range []int{3, 6} {
		flip(t, filepath.Join(stepDir(out, step), "model.safetensors"))
	}
	refused(t, newConfig(t, out), 0, checkpoint.ErrAllDamaged, stepDir(out, 3), stepDir(out, 6),
		"replace one of them with a copy, or choose another run.out")
}

// TestDamagedAndIncomplete: what there is to go on from by name is older than what is
// damaged, and than what is incomplete behind it.
func TestDamagedAndIncomplete(t *testing.T) {
	out := trained(t, "run.checkpoint_every=2")
	flip(t, filepath.Join(stepDir(out, 6), "model.safetensors"))
	must(t, os.Remove(filepath.Join(stepDir(out, 4), "manifest.json")))
	refused(t, newConfig(t, out), 0, checkpoint.ErrMissing, stepDir(out, 4), "--from-step (available: 2)")
	must(t, os.RemoveAll(stepDir(out, 2)))
	if err := refusal(t, newConfig(t, out), 0, checkpoint.ErrMissing, stepDir(out, 4)); strings.Contains(err.Error(), "--from-step") {
		t.Errorf("there is none to go on from, and the error says %v", err)
	}

	// A step's own second one, which a crash has left, is not older.
	out = trained(t, "run.checkpoint_every=2")
	must(t, os.Mkdir(stepDir(out, 6)+".replaced", 0o755))
	flip(t, filepath.Join(stepDir(out, 6), "model.safetensors"))
	refused(t, newConfig(t, out), 0, checkpoint.ErrMissing, stepDir(out, 6)+".replaced", "--from-step (available: 2, 4)")
}

// TestDamagedReplacement: a crash has left a checkpoint and the one that it was to
// replace. When the new one is damaged, the run goes on from the old one.
func TestDamagedReplacement(t *testing.T) {
	out := trained(t)
	whole := tree(t, stepDir(out, 6))
	must(t, os.CopyFS(stepDir(out, 6)+".replaced", os.DirFS(stepDir(out, 6))))
	flip(t, filepath.Join(stepDir(out, 6), "trainer.json"))
	damaged := tree(t, stepDir(out, 6))
	goesOn(t, newConfig(t, out), 0, 6)
	same(t, whole, tree(t, stepDir(out, 6)))
	same(t, damaged, tree(t, stepDir(out, 6)+".damaged"))
	if all := steps(t, out); !slices.Equal(all, upTo(6)) {
		t.Errorf("the metrics have the steps %v", all)
	}
	noneLeft(t, out)
}

// TestVanished: that a checkpoint is not there at all, as on a disk that is not mounted,
// is no reason to go on from an older one, or from scratch, where it is known that there
// was one.
func TestVanished(t *testing.T) {
	for _, tt := range []struct {
		name   string
		every  int
		remove string // in the folder checkpoints
		is     error
		want   []string
	}{
		{"the newest", 1, "step-00000006", checkpoint.ErrMissing, []string{"last points to step 6", "restore",
			"--from-step (available: 1, 2, 3, 4, 5)"}},
		{"all but the pointers", 1, "step-*", checkpoint.ErrMissing, []string{"last points to step 6", "restore"}},
		{"all", 1, "*", rundir.ErrFolder, []string{"reaches step 6", "due every step;", "restore", "move metrics.jsonl away"}},
		{"their folder", 1, "", rundir.ErrFolder, []string{"reaches step 6", "due every step;", "restore", "move metrics.jsonl away"}},
		{"all of several steps", 2, "*", rundir.ErrFolder, []string{"reaches step 6", "due every 2 steps;", "choose another run.out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t, fmt.Sprintf("run.checkpoint_every=%d", tt.every))
			gone, err := filepath.Glob(filepath.Join(out, "checkpoints", tt.remove))
			if err != nil || len(gone) == 0 {
				t.Fatalf("%v, %v", gone, err)
			}
			for _, path := range gone {
				must(t, os.RemoveAll(path))
			}
			refused(t, newConfig(t, out), 0, tt.is, tt.want...)
		})
	}
}

// TestNoCheckpointYet: a run that ended before its first checkpoint, or between it and the
// second, begins from scratch, with none of its lines.
func TestNoCheckpointYet(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, out string){
		"with the metrics up to the second": func(*testing.T, string) {},
		"without metrics":                   func(t *testing.T, out string) { must(t, os.Remove(filepath.Join(out, "metrics.jsonl"))) },
		"with metrics of no line":           func(t *testing.T, out string) { write(t, filepath.Join(out, "metrics.jsonl"), "") },
		"with a line that is cut short":     func(t *testing.T, out string) { write(t, filepath.Join(out, "metrics.jsonl"), `{"step": 1`) },
	} {
		t.Run(name, func(t *testing.T) {
			out := trained(t)
			must(t, os.RemoveAll(filepath.Join(out, "checkpoints")))
			prepare(t, out)
			l := live(t, newConfig(t, out), 0)
			if l.back != nil || l.begun.LastValLoss != nil || len(l.warnings()) > 0 {
				t.Errorf("it goes on from %v, the last validation gave %v, warnings %q", l.back, l.begun.LastValLoss, l.warnings())
			}
			if all := steps(t, out); !slices.Equal(all, upTo(6)) {
				t.Errorf("the metrics have the steps %v", all)
			}
		})
	}
	t.Run("with metrics of no JSON", func(t *testing.T) {
		out := trained(t)
		must(t, os.RemoveAll(filepath.Join(out, "checkpoints")))
		write(t, filepath.Join(out, "metrics.jsonl"), "{\n{}\n")
		l, err := begin(newConfig(t, out), 0)
		if err == nil || l.dir.Begun || !strings.Contains(err.Error(), filepath.Join(out, "metrics.jsonl")+": row 1") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("with a configuration of no TOML", func(t *testing.T) {
		out := trained(t)
		must(t, os.RemoveAll(filepath.Join(out, "checkpoints")))
		write(t, filepath.Join(out, "config.toml"), "title = 'my site'")
		refused(t, newConfig(t, out), 0, rundir.ErrFolder, out, "config.toml", "title")
	})
	t.Run("by name", func(t *testing.T) {
		out := filepath.Join(memoryDir(t), "new")
		if _, err := begin(newConfig(t, out), 5); !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), "of step 5") {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder is left: %v", err)
		}
	})
}

// TestPointerIsFolder: what can't be replaced by a pointer is refused before anything is
// changed.
func TestPointerIsFolder(t *testing.T) {
	for _, name := range []string{"last", "best"} {
		out := trained(t)
		flip(t, filepath.Join(stepDir(out, 6), "trainer.json")) // it would be set aside
		path := filepath.Join(out, "checkpoints", name)
		must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o755)))
		refused(t, newConfig(t, out), 0, checkpoint.ErrUnreadable, path, "remove it")
	}
}
