package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
)

func TestSaveAndRead(t *testing.T) {
	out := t.TempDir()
	s := openStore(t, openFS(t, out), ".") // once with all syncs
	want := content(100, "")
	dir := save(t, s, want)
	if dir != stepDir(out, 100) {
		t.Errorf("saved to %s, want %s", dir, stepDir(out, 100))
	}
	wantFiles := []string{
		"config.json", "config.toml", "manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		"model.safetensors.index.json", "optimizer.safetensors", "tokenizer.json", "trainer.json",
	}
	if got := listing(t, dir); !slices.Equal(got, wantFiles) {
		t.Errorf("files %q, want %q", got, wantFiles)
	}
	c, damaged, err := s.Newest()
	if err != nil || damaged != nil {
		t.Fatal(damaged, err)
	}
	if c.Dir() != dir {
		t.Errorf("opened %s, want %s", c.Dir(), dir)
	}
	checkContent(t, c, want)

	scalar := make([]float32, 1)
	must(t, c.Model().Float32("a.scalar", scalar))
	if scalar[0] != 100+8 {
		t.Errorf("a.scalar is %v", scalar)
	}
	for name, wantErr := range map[string]string{
		"h.0.weight": `tensor "h.0.weight", F32 [3 5]: 60 bytes of F32 hold 15 elements, but the destination holds 1`,
		"h.9.weight": `no tensor "h.9.weight" among its 5`,
	} {
		if err := c.Model().Float32(name, scalar); err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v, want %q", name, err, wantErr)
		}
	}
	for name, want := range map[string]error{"nothing.json": fs.ErrNotExist, "../step-00000100/config.json": nil, ".lock": nil} {
		if _, err := c.File(name); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("File(%q): %v", name, err)
		}
	}
	must(t, c.Close())
	if _, err := c.Model().Bytes("h.0.weight"); err == nil {
		t.Error("a closed checkpoint hands out bytes")
	}
}

func TestSaveRefuses(t *testing.T) {
	tensor := safetensors.F32("w", []int{2}, []float32{1, 2})
	for _, c := range []struct {
		name    string
		content checkpoint.Content
		want    string
	}{
		{"negative step", checkpoint.Content{Step: -1}, "step -1"},
		{"negative shards", checkpoint.Content{MaxShardBytes: -1}, "MaxShardBytes is -1: it must be 0 or more"},
		{"a file outside", checkpoint.Content{Files: map[string][]byte{"../config.json": nil}}, `"../config.json" is not allowed`},
		{"a hidden file", checkpoint.Content{Files: map[string][]byte{".config": nil}}, `".config" is not allowed`},
		{"a file without a name", checkpoint.Content{Files: map[string][]byte{"": nil}}, `"" is not allowed`},
		{"the manifest", checkpoint.Content{Files: map[string][]byte{"manifest.json": nil}}, "is reserved for the checkpoint"},
		{"the weights as a file", checkpoint.Content{Files: map[string][]byte{"model.safetensors": nil}}, "is reserved for the checkpoint"},
		{"a tensor twice", checkpoint.Content{Model: []safetensors.Tensor{tensor, tensor}},
			`model.safetensors: cannot be written as safetensors: the key "w" appears twice`},
		{"a tensor twice in shards", checkpoint.Content{Model: []safetensors.Tensor{tensor, tensor}, MaxShardBytes: 8},
			`"w" occurs twice, in model-00001-of-00002.safetensors and model-00002`},
		{"a bad tensor of the model", checkpoint.Content{Model: []safetensors.Tensor{tensor, {Name: "v", DType: "F99"}}},
			`tensor "v": unknown dtype "F99"`},
		{"too large a file", checkpoint.Content{Files: map[string][]byte{"config.json": make([]byte, checkpoint.FileBytesMax+1)}},
			"config.json has 268435457 bytes; the limit is 268435456"},
		{"too many files", checkpoint.Content{Files: manyFiles(checkpoint.FilesMax)}, "the checkpoint has 8193 files; the limit is 8192"},
		{"too many shards", checkpoint.Content{Model: slices.Repeat([]safetensors.Tensor{tensor}, checkpoint.ShardsMax+1), MaxShardBytes: 1},
			"the model has 4097 shards, but the limit is 4096: raise MaxShardBytes, 1"},
		{"a bad tensor", checkpoint.Content{Optimizer: []safetensors.Tensor{{Name: "m", DType: "F99"}}},
			`optimizer.safetensors: tensor "m": unknown dtype "F99"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := t.TempDir()
			s := storeIn(t, out)
			if _, err := s.Save(context.Background(), c.content); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if left := listing(t, out); len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

// manyFiles are n small files beside the weights.
func manyFiles(n int) map[string][]byte {
	files := make(map[string][]byte)
	for i := range n {
		files[fmt.Sprintf("file-%d.json", i)] = nil
	}
	return files
}

func TestSaveStopsWithItsContext(t *testing.T) {
	s, out := saved(t, 100)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Save(ctx, content(200, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := listing(t, filepath.Join(out, "checkpoints")); !slices.Equal(got, []string{"step-00000100"}) {
		t.Errorf("it left %q", got)
	}
}

func TestNoSpace(t *testing.T) {
	base := t.TempDir()
	fsys, err := crashfs.New(base)
	must(t, err)
	s := openStore(t, fsys, ".")
	save(t, s, content(100, ""))

	fsys.Free = 1000
	_, err = s.Save(context.Background(), content(200, ""))
	if !errors.Is(err, checkpoint.ErrNoSpace) || !strings.Contains(err.Error(), "1000 are free") || !strings.Contains(err.Error(), base) {
		t.Errorf("before writing: %v", err)
	}
	fsys.Free = 1 << 40
	fsys.FailAt(20, syscall.ENOSPC)
	_, err = s.Save(context.Background(), content(200, ""))
	if !errors.Is(err, checkpoint.ErrNoSpace) || !strings.Contains(err.Error(), " bytes) to "+base) {
		t.Errorf("while writing: %v", err)
	}
	if got := listing(t, filepath.Join(base, "checkpoints")); !slices.Equal(got, []string{"step-00000100"}) {
		t.Errorf("it left %q", got)
	}
}

func TestPrune(t *testing.T) {
	for _, c := range []struct {
		name       string
		steps      []int
		last, best int // 0: no pointer
		keep       int
		want       []int // removed
	}{
		{name: "all stay", steps: []int{1, 2, 3}, keep: 0},
		{name: "fewer than keep", steps: []int{1, 2}, keep: 3},
		{name: "the newest stay", steps: []int{1, 2, 3, 4}, keep: 2, want: []int{1, 2}},
		{name: "best and last stay", steps: []int{1, 2, 3, 4, 5}, last: 3, best: 1, keep: 1, want: []int{2, 4}},
		{name: "a step above eight digits", steps: []int{99_999_999, 100_000_000}, keep: 1, want: []int{99_999_999}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, out := saved(t)
			for _, step := range c.steps {
				save(t, s, small(step, ""))
			}
			if c.last > 0 {
				must(t, s.SetLast(c.last))
			}
			if c.best > 0 {
				must(t, s.SetBest(c.best))
			}
			removed, err := s.Prune(c.keep)
			if err != nil || !slices.Equal(removed, c.want) {
				t.Fatalf("removed %d, %v, want %d", removed, err, c.want)
			}
			left := slices.DeleteFunc(slices.Clone(c.steps), func(step int) bool { return slices.Contains(c.want, step) })
			if got, err := s.Steps(); err != nil || !slices.Equal(got, left) {
				t.Errorf("left %d, %v, want %d", got, err, left)
			}
			for _, name := range listing(t, filepath.Join(out, "checkpoints")) {
				if strings.HasPrefix(name, ".") {
					t.Errorf("it left %s", name)
				}
			}
		})
	}
	s, out := saved(t, 1, 2)
	if _, err := s.Prune(-1); err == nil {
		t.Error("keep -1 is accepted")
	}
	// A best that can't be read could be any of them.
	must(t, os.WriteFile(filepath.Join(out, "checkpoints", "best"), []byte("rubbish"), 0o644))
	if removed, err := s.Prune(1); err == nil || removed != nil {
		t.Errorf("with a broken pointer: %d, %v", removed, err)
	}
}

// noLinks is a system without symbolic links.
type noLinks struct{ checkpoint.FS }

func (noLinks) Symlink(string, string) error { return errors.ErrUnsupported }

func TestPointers(t *testing.T) {
	for name, links := range map[string]bool{"links": true, "files": false} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			fsys := quick(t, out)
			if !links {
				fsys = noLinks{fsys}
			}
			s := openStore(t, fsys, ".")
			if step, ok, err := s.Last(); ok || err != nil {
				t.Errorf("no pointer yet: %d, %v, %v", step, ok, err)
			}
			if err := s.SetLast(100); !errors.Is(err, checkpoint.ErrNone) {
				t.Errorf("a pointer to nothing: %v", err)
			}
			for _, step := range []int{100, 200} {
				save(t, s, small(step, ""))
				must(t, s.SetLast(step))
				if got, ok, err := s.Last(); got != step || !ok || err != nil {
					t.Errorf("last: %d, %v, %v, want %d", got, ok, err, step)
				}
			}
			must(t, s.SetBest(100))
			if got, ok, err := s.Best(); got != 100 || !ok || err != nil {
				t.Errorf("best: %d, %v, %v", got, ok, err)
			}
			if found, err := checkpoint.Resolve(out); err != nil || found != stepDir(out, 200) {
				t.Errorf("Resolve: %s, %v", found, err)
			}
		})
	}
	s, out := saved(t, 100)
	must(t, s.SetLast(100))
	if target, err := os.Readlink(filepath.Join(out, "checkpoints", "last")); target != "step-00000100" {
		t.Errorf("last points to %q, %v: it is to be relative", target, err)
	}
	for _, target := range []string{"../../etc", "/etc", "step-1", "step-000000100", "step--0000001", ""} {
		path := filepath.Join(out, "checkpoints", "best")
		must(t, os.RemoveAll(path))
		must(t, os.WriteFile(path, []byte(target), 0o644))
		if _, _, err := s.Best(); err == nil || !strings.Contains(err.Error(), "not the name of a checkpoint") {
			t.Errorf("best is %q: %v", target, err)
		}
	}
}

func TestNoneAndAllDamaged(t *testing.T) {
	s, out := saved(t)
	if _, _, err := s.Newest(); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("an empty store: %v", err)
	}
	save(t, s, small(100, ""))
	save(t, s, small(200, ""))
	must(t, os.Truncate(filepath.Join(stepDir(out, 200), "trainer.json"), 3))
	must(t, os.Truncate(filepath.Join(stepDir(out, 100), "manifest.json"), 0))
	_, damaged, err := s.Newest()
	if !errors.Is(err, checkpoint.ErrAllDamaged) || !errors.Is(err, checkpoint.ErrDamaged) || len(damaged) != 2 {
		t.Fatalf("%v, %v", damaged, err)
	}
	for i, want := range []string{"step-00000200: the checkpoint is damaged: trainer.json: truncated: the file has 3 of",
		"step-00000100: the checkpoint is damaged: manifest.json: malformed: unexpected end"} {
		if !strings.Contains(damaged[i].Err.Error(), want) {
			t.Errorf("%v: %q is not in it", damaged[i].Err, want)
		}
	}
}

// A checkpoint under another's name may be whole: it is no proof that it is not.
func TestStepInNameAndManifestDiffer(t *testing.T) {
	s, out := saved(t, 100, 200)
	must(t, os.Rename(stepDir(out, 200), stepDir(out, 300)))
	_, _, err := s.Newest()
	if !errors.Is(err, checkpoint.ErrUnreadable) || !strings.Contains(err.Error(),
		"step-00000300 holds the checkpoint of step 200: rename it to step-00000200") {
		t.Errorf("error %v", err)
	}
	if checkpoint.TryAgain(err) {
		t.Error("trying again helps, it says")
	}
	if report, err := s.Verify(300); err != nil || report.State() != checkpoint.StateUnreadable {
		t.Errorf("Verify: %v, %v", report, err)
	}
}

func TestAt(t *testing.T) {
	s, out := saved(t, 100, 200, 300)
	c, err := s.At(200)
	must(t, err)
	checkContent(t, c, content(200, ""))
	must(t, c.Close())
	if _, err := s.At(150); !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(),
		"of step 150: there are checkpoints of steps 100, 200, 300; choose one of these") {
		t.Errorf("no such step: %v", err)
	}
	must(t, os.Truncate(filepath.Join(stepDir(out, 200), "trainer.json"), 3))
	if _, err := s.At(200); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a damaged one: %v", err)
	}
}

func TestSetAside(t *testing.T) {
	s, out := saved(t, 100, 200)
	dir := filepath.Join(out, "checkpoints")
	before := tree(t, stepDir(out, 200))
	must(t, os.WriteFile(filepath.Join(dir, "step-00000200.damaged"), nil, 0o644)) // taken
	for _, c := range []struct{ suffix, want string }{
		{"damaged", "step-00000200.damaged-2"}, {"damaged", "step-00000200.damaged-3"}, {"superseded", "step-00000200.superseded"},
	} {
		path, err := s.SetAside(200, c.suffix)
		if err != nil || path != filepath.Join(dir, c.want) {
			t.Fatalf("%s, %v, want %s", path, err, c.want)
		}
		if after := tree(t, path); after != before {
			t.Errorf("%s holds\n%swant\n%s", path, after, before)
		}
		if steps, err := s.Steps(); err != nil || !slices.Equal(steps, []int{100}) {
			t.Errorf("steps %d, %v", steps, err)
		}
		save(t, s, content(200, ""))
	}
	if _, err := s.SetAside(300, "damaged"); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("a step that isn't there: %v", err)
	}
	if _, err := s.SetAside(200, "../x"); err == nil {
		t.Error("another suffix is accepted")
	}
}

// The old checkpoint of a step is removed only when the new one is proven whole.
func TestReplacedIsKept(t *testing.T) {
	const step, replaced = "step-00000100", "step-00000100.replaced"
	for _, c := range []struct {
		name   string
		damage []string          // folders whose trainer.json is cut
		remove string            // a folder that loses its manifest
		want   map[string]string // what is there afterwards, by what it was
	}{
		{"the new one is whole", nil, "", map[string]string{step: step}},
		{"the new one is damaged", []string{step}, "", map[string]string{step: replaced, step + ".damaged": step}},
		{"both are damaged", []string{step, replaced}, "", map[string]string{step: step, step + ".superseded": replaced}},
		{"the new one is incomplete", nil, step, map[string]string{step: step, step + ".superseded": replaced}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, out := saved(t)
			dir := filepath.Join(out, "checkpoints")
			save(t, s, content(100, "old"))
			must(t, os.Rename(stepDir(out, 100), filepath.Join(dir, "kept")))
			save(t, s, content(100, "newer"))
			must(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, replaced)))
			for _, name := range c.damage {
				must(t, os.Truncate(filepath.Join(dir, name, "trainer.json"), 3))
			}
			if c.remove != "" {
				must(t, os.Remove(filepath.Join(dir, c.remove, "manifest.json")))
			}
			before := map[string]string{step: tree(t, filepath.Join(dir, step)), replaced: tree(t, filepath.Join(dir, replaced))}
			must(t, s.Clean())
			if got := listing(t, dir); !slices.Equal(got, slices.Sorted(maps.Keys(c.want))) {
				t.Fatalf("left %q, want %q", got, c.want)
			}
			for name, was := range c.want {
				if after := tree(t, filepath.Join(dir, name)); after != before[was] {
					t.Errorf("%s holds\n%swant\n%s", name, after, before[was])
				}
			}
		})
	}
	t.Run("something that Save has not made", func(t *testing.T) {
		s, out := saved(t, 100)
		elsewhere := t.TempDir()
		must(t, os.WriteFile(filepath.Join(elsewhere, "thesis.txt"), []byte("x"), 0o644))
		must(t, os.Symlink(elsewhere, stepDir(out, 200)))
		save(t, s, content(200, ""))
		if target, err := os.Readlink(stepDir(out, 200) + ".superseded"); err != nil || target != elsewhere {
			t.Errorf("the link is now %s, %v", target, err)
		}
		if got := listing(t, elsewhere); !slices.Equal(got, []string{"thesis.txt"}) {
			t.Errorf("elsewhere there is %q", got)
		}
	})
}

func TestOpenStoreOnAFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	must(t, os.WriteFile(out, nil, 0o644))
	if _, err := checkpoint.OpenStore(quick(t, filepath.Dir(out)), "out"); err == nil {
		t.Error("a file is no output folder")
	}
}

// TestDropBest: the pointer stays as long as there is what it points to.
func TestDropBest(t *testing.T) {
	s, _ := saved(t, 100, 200)
	must(t, s.DropBest())
	must(t, s.SetBest(200))
	must(t, s.DropBest())
	if step, ok, err := s.Best(); step != 200 || !ok || err != nil {
		t.Errorf("best: %d, %v, %v", step, ok, err)
	}
	if _, err := s.SetAside(200, checkpoint.SupersededSuffix); err != nil {
		t.Fatal(err)
	}
	must(t, s.DropBest())
	if step, ok, err := s.Best(); ok || err != nil {
		t.Errorf("best: %d, %v, %v", step, ok, err)
	}
}
