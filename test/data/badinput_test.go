package data

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestUnusable: what can't be trained is refused before anything is written, in
// a new folder and in one that holds a run.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	empty := testrun.Write(t, filepath.Join(dir, "empty.txt"), "")
	short := testrun.Write(t, filepath.Join(dir, "short.txt"), "To be, or not to")
	binaryText := testrun.Write(t, filepath.Join(dir, "latin1.txt"), strings.Repeat("Ein B\xe4r. ", 100))
	odd := testrun.Write(t, filepath.Join(dir, "odd.bin"), strings.Repeat("x", 1001))
	out := testrun.Trained(t)

	for _, tt := range []struct {
		name string
		sets []string
		want []string
		is   error
	}{
		{"no such file", []string{"data.train=nowhere.txt"}, []string{"data.train", `"nowhere.txt" does not exist`}, nil},
		{"nothing matches", []string{"data.train=nowhere/*.txt"}, []string{"data.train", `"nowhere/*.txt" matches no file`}, nil},
		{"an empty file", []string{"data.train=" + empty}, []string{"data.train", "0 bytes"}, data.ErrEmpty},
		{"an empty validation file", []string{"data.val=" + empty}, []string{"data.val:", "0 bytes"}, data.ErrEmpty},
		{"shorter than a context", []string{"data.train=" + short, "data.val=testdata/troupe.txt"},
			[]string{"data.train", "16 tokens", "needs 17"}, data.ErrTooShort},
		{"validation shorter than a context", []string{"data.val=" + short}, []string{"data.val:", "16 tokens", "needs 17"}, data.ErrTooShort},
		{"a tail shorter than a context", []string{"data.val_fraction=0.001"}, []string{"data.val_fraction", "13 tokens", "needs 17"},
			data.ErrTooShort},
		{"no UTF-8", []string{"data.train=" + binaryText, "data.tokenizer=chars"}, []string{"data.train", binaryText, "byte 5", "0xe4"}, nil},
		{"an odd number of bytes", []string{"data.train=" + odd, "data.format=uint16"}, []string{"data.train", odd, "1001 bytes"}, nil},
		{"a small vocabulary", []string{"model.vocab=100"}, []string{"model.vocab", "100", "256"}, nil},
		{"a layout without all layers", []string{"pipeline.stages=2", "pipeline.layout=Ett|tL"}, []string{"pipeline.layout", "3 t", "4 layers"},
			nil},
		{"a layout with other stages", []string{"pipeline.stages=2", "pipeline.layout=Ett|t|tL"},
			[]string{"pipeline.layout", "3 chunks", "2 ranks with 1 each"}, nil},
		{"a layout that is none", []string{"pipeline.layout=Et(t"}, []string{"pipeline.layout", "column 5"}, nil},
		{"a schedule for other stages", []string{"pipeline.stages=2", "pipeline.schedule=none"}, []string{"pipeline.schedule", "1 rank, not 2"},
			nil},
		{"a group above the microbatches", []string{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.microbatch_group_size=16"},
			[]string{"microbatch group size 16", "8 microbatches"}, nil},
		{"a group for no chunks", []string{"pipeline.stages=2", "pipeline.microbatch_group_size=4"}, []string{"microbatch group size 4", "1f1b"},
			nil},
		{"unknown kernels", []string{"device.kernels=abacus"}, []string{"device.kernels", "abacus"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), tt.sets...), troupe.Options{}, tt.is, tt.want...)
			testrun.Refused(t, testrun.NewConfig(t, out, tt.sets...), troupe.Options{}, nil)
		})
	}
}

// TestImpossibleFromCode: a configuration that was changed after it had been
// read is checked again.
func TestImpossibleFromCode(t *testing.T) {
	for _, change := range []func(*config.Config){
		func(c *config.Config) { c.Batch.Microbatch = 0 },
		func(c *config.Config) { c.Batch.Microbatch = 3 },
		func(c *config.Config) { c.Model.Heads = 5 },
		func(c *config.Config) { c.Data.Train = nil },
		func(c *config.Config) { c.Pipeline.Stages = -1 },
		func(c *config.Config) { *c = config.Config{} },
	} {
		cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"))
		change(cfg)
		testrun.Refused(t, cfg, troupe.Options{}, nil)
		if err := troupe.Check(cfg); err == nil {
			t.Error("Check has nothing against it")
		}
	}
}

// TestMemory: a model that doesn't fit is refused by numbers, without any of its
// memory being allocated.
func TestMemory(t *testing.T) {
	testrun.SetFreeMemory(t, 64<<30)
	for _, sets := range [][]string{
		{"model.layers=96", "model.hidden=12288", "model.heads=96"}, // 174 billion parameters
		{"model.layers=4096", "model.hidden=1048576", "model.context=1048576", "model.ffn=4194304", "pipeline.stages=8"},
	} {
		cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), append(sets, "data.val=testdata/troupe.txt", "batch.microbatch=8")...)
		err := troupe.Check(cfg)
		if !errors.Is(err, troupe.ErrMemory) {
			t.Errorf("Check says %v", err)
		}
	}
	cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "model.layers=96", "model.hidden=12288", "model.heads=96")
	testrun.Refused(t, cfg, troupe.Options{}, troupe.ErrMemory, "model.hidden", "64.0 GiB free")

	out := testrun.Trained(t)
	testrun.SetFreeMemory(t, 30<<10)
	if _, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}}); !errors.Is(err,
		troupe.ErrMemory) {
		t.Errorf("Evaluate says %v", err)
	}
	testrun.Refused(t, testrun.NewConfig(t, out, "run.steps=9"), troupe.Options{}, troupe.ErrMemory)
}

// TestForeignFolder: a folder that no run has written is not touched, whatever
// is in it.
func TestForeignFolder(t *testing.T) {
	run := testrun.Trained(t)
	for _, tt := range []struct {
		name  string
		files map[string]string
		fresh bool
		want  string
	}{
		{"someone's files", map[string]string{"thesis.txt": "x"}, false, "thesis.txt"},
		{"another program's config.toml", map[string]string{"config.toml": "title = 'my site'\n"}, false, "config.toml"},
		{"a config.toml to start from", map[string]string{"config.toml": testrun.SmallRun}, false, "no .lock"},
		{"fresh among someone's files", map[string]string{"thesis.txt": "x"}, true, "not empty"},
		{"a file", nil, false, "run.out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			for name, content := range tt.files {
				testrun.Write(t, filepath.Join(out, name), content)
			}
			if tt.files == nil {
				testrun.Write(t, out, "x")
			}
			testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{Fresh: tt.fresh}, troupe.ErrOutput, out, tt.want)
			if _, err := os.Stat(filepath.Join(out, ".lock")); err == nil {
				t.Error("the folder has been locked")
			}
		})
	}
	t.Run("fresh on a run", func(t *testing.T) {
		testrun.Refused(t, testrun.NewConfig(t, run), troupe.Options{Fresh: true}, troupe.ErrOutput, "not empty")
	})
}

// TestLocked: another process's folder is left alone, and trying again may help.
func TestLocked(t *testing.T) {
	out := testrun.Trained(t)
	lock, err := checkpoint.LockDir(out)
	if err != nil {
		t.Fatal(err)
	}
	before := testrun.Tree(t, out)
	_, err = troupe.Start(context.Background(), testrun.NewConfig(t, out), troupe.Options{})
	if setup := new(troupe.SetupError); !errors.Is(err, checkpoint.ErrLocked) || errors.As(err, &setup) {
		t.Errorf("error %v, want ErrLocked, not as a *SetupError", err)
	}
	if after := testrun.Tree(t, out); after != before {
		t.Errorf("the folder had\n%sit has\n%s", before, after)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, out) // and no lock is left of the attempt
}

// TestVocabularyAtWork: an id above the vocabulary is found when it is read. The
// data is at fault, not the run.
func TestVocabularyAtWork(t *testing.T) {
	ids := make([]byte, 0, 8000)
	for i := range 4000 {
		ids = binary.LittleEndian.AppendUint16(ids, uint16(i%300))
	}
	file := testrun.Write(t, filepath.Join(t.TempDir(), "ids.bin"), string(ids))
	sets := []string{"data.train=" + file, "data.format=uint16"}

	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), sets...), troupe.Options{})
	if err == nil {
		_, err = run.Wait()
	}
	checkVocabError(t, err, file)

	out := testrun.Trained(t, append(sets, "model.vocab=300")...)
	if _, err := os.Stat(filepath.Join(testrun.StepDir(out, 6), "tokenizer.json")); err == nil {
		t.Error("the checkpoint has a tokenizer, though nobody knows which one made the ids")
	}
	small := testrun.Trained(t)
	_, err = troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: small}, Data: []string{file},
		Format: "uint16"})
	checkVocabError(t, err, file)
}

func checkVocabError(t *testing.T, err error, file string) {
	t.Helper()
	if setup := new(troupe.SetupError); !errors.Is(err, data.ErrVocab) || !errors.As(err, &setup) {
		t.Fatalf("error %v, want data.ErrVocab as a *SetupError", err)
	}
	for _, want := range []string{file, "256 ids", "model.vocab"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
}

// TestDamaged: a checkpoint that isn't whole is passed over, with a warning, and
// the run gives what it would have given.
func TestDamaged(t *testing.T) {
	want := testrun.Trained(t)
	file := func(name string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string { return filepath.Join(dir, name) }
	}
	flip := func(name string, at int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := file(name)(t, dir)
			b := []byte(testrun.Read(t, path))
			b[(at+len(b))%len(b)] ^= 4
			testrun.Write(t, path, string(b))
		}
	}
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir string)
	}{
		{"cut short", func(t *testing.T, dir string) {
			path := file("model.safetensors")(t, dir)
			testrun.Write(t, path, testrun.Read(t, path)[:1000])
		}},
		{"a weight's bit", flip("model.safetensors", -1)},
		{"a bit of a header", flip("optimizer.safetensors", 20)},
		{"a bit of the manifest", flip("manifest.json", 100)},
		{"a bit of the trainer's state", flip("trainer.json", 50)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := testrun.CopyTree(t, want)
			tt.damage(t, testrun.StepDir(out, 6))
			damaged, metrics := testrun.Tree(t, testrun.StepDir(out, 6)), testrun.Read(t, filepath.Join(out, "metrics.jsonl"))
			result, events := testrun.Train(t, out)
			warnings := testrun.EventsOf[troupe.WarningEvent](events)
			if len(warnings) != 2 || !strings.Contains(warnings[0].Text, testrun.StepDir(out, 6)+": ") ||
				!strings.HasSuffix(warnings[0].Text, "renamed to "+testrun.StepDir(out, 6)+".damaged") ||
				!strings.Contains(warnings[1].Text, "from step 3") || !strings.HasSuffix(warnings[1].Text, "copied to "+
				filepath.Join(out, "metrics.jsonl.superseded")) {
				t.Errorf("warnings %v, want one that names step 6 and one that names step 3, and both what is kept", warnings)
			}
			if kept := testrun.Tree(t, testrun.StepDir(out, 6)+".damaged"); kept != damaged {
				t.Errorf("the damaged one was\n%skept is\n%s", damaged, kept)
			}
			if kept := testrun.Read(t, filepath.Join(out, "metrics.jsonl.superseded")); kept != metrics {
				t.Errorf("the metrics were\n%skept are\n%s", metrics, kept)
			}
			if result.Step != 6 || result.Dir != testrun.StepDir(out, 6) {
				t.Errorf("it ended at step %d with the checkpoint %s", result.Step, result.Dir)
			}
			testrun.SameFigures(t, want, out)
			testrun.SameState(t, want, out, 6)
		})
	}
	t.Run("all", func(t *testing.T) {
		out := testrun.CopyTree(t, want)
		flip("model.safetensors", -1)(t, testrun.StepDir(out, 3))
		flip("model.safetensors", -1)(t, testrun.StepDir(out, 6))
		testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{}, checkpoint.ErrAllDamaged, testrun.StepDir(out, 3),
			testrun.StepDir(out, 6))
	})
	t.Run("the metrics", func(t *testing.T) {
		out := testrun.CopyTree(t, want)
		testrun.Write(t, filepath.Join(out, "metrics.jsonl"), "{\n"+testrun.Read(t, filepath.Join(out, "metrics.jsonl")))
		testrun.Refused(t, testrun.NewConfig(t, out), troupe.Options{}, nil, "metrics.jsonl", "row 1")
	})
}

// TestPointersAfterDamage: what `last` and `best` point to is intact again as
// soon as the run goes on.
func TestPointersAfterDamage(t *testing.T) {
	out := testrun.Trained(t)
	if err := os.Truncate(filepath.Join(testrun.StepDir(out, 6), "model.safetensors"), 1000); err != nil {
		t.Fatal(err)
	}
	if result, _ := testrun.Train(t, out, "run.steps=3"); result.Step != 3 || result.Dir != testrun.StepDir(out, 3) {
		t.Fatalf("it ended at step %d with the checkpoint %s", result.Step, result.Dir)
	}
	for _, pointer := range []string{"last", "best"} {
		if target, err := os.Readlink(filepath.Join(out, "checkpoints", pointer)); err != nil ||
			target != filepath.Base(testrun.StepDir(out, 3)) {
			t.Errorf("%s points to %s, %v", pointer, target, err)
		}
	}
}
