package checkpoint_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/checkpoint/crashfs"
	"github.com/troupe-ml/troupe/checkpoint/safetensors"
)

func TestSaveAndRead(t *testing.T) {
	out := t.TempDir()
	s := openStore(t, checkpoint.OS(), out) // once with all syncs
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
		"h.0.weight": `tensor "h.0.weight", F32 [3 5]: 60 bytes of F32 hold 15 elements, the destination holds 1`,
		"h.9.weight": `no tensor "h.9.weight" among the 5`,
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
		{"negative shards", checkpoint.Content{MaxShardBytes: -1}, "shards of -1 bytes"},
		{"a file outside", checkpoint.Content{Files: map[string][]byte{"../config.json": nil}}, `"../config.json" is not allowed`},
		{"a hidden file", checkpoint.Content{Files: map[string][]byte{".config": nil}}, `".config" is not allowed`},
		{"a file without a name", checkpoint.Content{Files: map[string][]byte{"": nil}}, `"" is not allowed`},
		{"the manifest", checkpoint.Content{Files: map[string][]byte{"manifest.json": nil}}, "is the checkpoint's own"},
		{"the weights as a file", checkpoint.Content{Files: map[string][]byte{"model.safetensors": nil}}, "is the checkpoint's own"},
		{"a tensor twice", checkpoint.Content{Model: []safetensors.Tensor{tensor, tensor}}, `model.safetensors: cannot be written as safetensors: the key "w" appears twice`},
		{"a tensor twice in shards", checkpoint.Content{Model: []safetensors.Tensor{tensor, tensor}, MaxShardBytes: 8}, `"w" appears twice, in model-00001-of-00002.safetensors and model-00002`},
		{"a bad tensor", checkpoint.Content{Optimizer: []safetensors.Tensor{{Name: "m", DType: "F99"}}}, `optimizer.safetensors: tensor "m": unknown dtype "F99"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := t.TempDir()
			s := openStore(t, quick(), out)
			if _, err := s.Save(context.Background(), c.content); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if left := listing(t, out); len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
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
	s := openStore(t, fsys, base)
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
	for name, fsys := range map[string]checkpoint.FS{"links": quick(), "files": noLinks{quick()}} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			s := openStore(t, fsys, out)
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
		if _, _, err := s.Best(); err == nil || !strings.Contains(err.Error(), "no checkpoint's name") {
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
	must(t, os.Remove(filepath.Join(stepDir(out, 200), "trainer.json")))
	must(t, os.Remove(filepath.Join(stepDir(out, 100), "manifest.json")))
	_, damaged, err := s.Newest()
	if !errors.Is(err, checkpoint.ErrAllDamaged) || !errors.Is(err, checkpoint.ErrDamaged) || len(damaged) != 2 {
		t.Fatalf("%v, %v", damaged, err)
	}
	for i, want := range []string{"step-00000200: the checkpoint is damaged: trainer.json: missing", "step-00000100: the checkpoint is damaged: manifest.json is missing"} {
		if !strings.Contains(damaged[i].Error(), want) {
			t.Errorf("%v: %q is not in it", damaged[i], want)
		}
	}
}

func TestStepInNameAndManifestDiffer(t *testing.T) {
	s, out := saved(t, 100, 200)
	must(t, os.Rename(stepDir(out, 200), stepDir(out, 300)))
	c, damaged, err := s.Newest()
	must(t, err)
	defer func() { must(t, c.Close()) }()
	if c.Step() != 100 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), "it is of step 200") {
		t.Errorf("step %d, damaged %v", c.Step(), damaged)
	}
}

// Of every kind of file: cut at several places, a bit turned at several places,
// a byte more, the file gone, a link in its place. The older checkpoint is found,
// and the report names the file.
func TestDamageFallsBack(t *testing.T) {
	s, out := saved(t, 100, 200)
	dir := stepDir(out, 200)
	for _, name := range listing(t, dir) {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		must(t, err)
		damage := func(what string, data []byte) {
			t.Helper()
			must(t, os.WriteFile(path, data, 0o644))
			checkFallsBack(t, s, name, what)
		}
		for _, n := range []int{0, 1, 7, len(whole) / 2, len(whole) - 1} {
			damage("truncated", whole[:min(n, len(whole)-1)])
		}
		for _, bit := range []int{0, 8*9 + 1, 4 * len(whole), 8*len(whole) - 8, 8*len(whole) - 1} {
			bit = min(bit, 8*len(whole)-1)
			turned := slices.Clone(whole)
			turned[bit/8] ^= 1 << (bit % 8)
			damage("bit turned", turned)
		}
		damage("longer", append(slices.Clone(whole), ' '))
		must(t, os.Remove(path))
		checkFallsBack(t, s, name, "missing")
		must(t, os.Symlink(filepath.Join(stepDir(out, 100), name), path))
		checkFallsBack(t, s, name, "a link")
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o755))
		checkFallsBack(t, s, name, "a folder")
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, whole, 0o644))
	}
	c, damaged, err := s.Newest()
	if err != nil || damaged != nil || c.Step() != 200 {
		t.Fatalf("put right again: %v, %v", damaged, err)
	}
	must(t, c.Close())
}

func checkFallsBack(t *testing.T, s *checkpoint.Store, name, what string) {
	t.Helper()
	c, damaged, err := s.Newest()
	if err != nil {
		t.Fatalf("%s %s: %v", name, what, err)
	}
	if c.Step() != 100 || len(damaged) != 1 || !errors.Is(damaged[0], checkpoint.ErrDamaged) ||
		!strings.Contains(damaged[0].Error(), name) || !strings.Contains(damaged[0].Error(), "step-00000200") {
		t.Errorf("%s %s: found step %d, damaged %v", name, what, c.Step(), damaged)
	}
	must(t, c.Close())
}

func TestOpenStoreOnAFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	must(t, os.WriteFile(out, nil, 0o644))
	if _, err := checkpoint.OpenStore(quick(), out); err == nil {
		t.Error("a file is no output folder")
	}
}
