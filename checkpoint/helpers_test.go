package checkpoint_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(lockChildEnv); dir != "" {
		lockChild(dir)
		return
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// values are those of the tensor name in the checkpoint (step, tag).
func values(step int, tag, name string, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(step) + float32(len(tag)*100+len(name)) + float32(i)/8
	}
	return v
}

// content is a small checkpoint with every kind of file, the model in two
// shards. tag tells two checkpoints of one step apart.
func content(step int, tag string) checkpoint.Content {
	c := checkpoint.Content{
		Step: step,
		Files: map[string][]byte{
			"config.json":    []byte(`{"model_type": "gpt2"}`),
			"config.toml":    []byte("[run]\nsteps = 1000\n"),
			"tokenizer.json": []byte(`{}`),
			"trainer.json":   fmt.Appendf(nil, `{"step": %d, "tag": %q}`, step, tag),
		},
		MaxShardBytes: 100,
	}
	for name, shape := range modelShapes {
		c.Model = append(c.Model, safetensors.F32(name, shape, values(step, tag, name, elements(shape))))
	}
	slices.SortFunc(c.Model, func(a, b safetensors.Tensor) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	c.Optimizer = []safetensors.Tensor{
		safetensors.F32("m.wte.weight", []int{4, 5}, values(step, tag, "m.wte.weight", 20)),
		{Name: "t", DType: "I64", Data: binary.LittleEndian.AppendUint64(nil, uint64(step))},
	}
	return c
}

// small is content in as few files as can be, for the tests that write many.
func small(step int, tag string) checkpoint.Content {
	c := content(step, tag)
	c.MaxShardBytes = 0
	c.Files = map[string][]byte{"trainer.json": c.Files["trainer.json"]}
	return c
}

var modelShapes = map[string][]int{
	"a.empty": {0, 3}, "a.scalar": {}, "h.0.weight": {3, 5}, "h.1.weight": {3, 2}, "wte.weight": {4, 5},
}

func elements(shape []int) int {
	n := 1
	for _, dim := range shape {
		n *= dim
	}
	return n
}

// checkContent makes sure that c holds what was saved, to the last bit.
func checkContent(t testing.TB, c *checkpoint.Checkpoint, want checkpoint.Content) {
	t.Helper()
	if c.Step() != want.Step || len(c.Optimizer().Names()) == 0 || c.Manifest == nil || c.Manifest.Step != want.Step {
		t.Fatalf("step %d, optimizer %q, manifest %+v; want step %d", c.Step(), c.Optimizer().Names(), c.Manifest, want.Step)
	}
	for name, data := range want.Files {
		if got, err := c.File(name); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %q, %v, want %q", name, got, err, data)
		}
	}
	checkTensors(t, c.Model(), want.Model)
	checkTensors(t, c.Optimizer(), want.Optimizer)
}

func checkTensors(t testing.TB, got *checkpoint.Tensors, want []safetensors.Tensor) {
	t.Helper()
	if names := got.Names(); len(names) != len(want) {
		t.Fatalf("tensors %q, want %d", names, len(want))
	}
	for _, w := range want {
		info, ok := got.Info(w.Name)
		if !ok || info.DType != w.DType || !slices.Equal(info.Shape, w.Shape) {
			t.Fatalf("tensor %q: %+v, want %s %v", w.Name, info, w.DType, w.Shape)
		}
		var data bytes.Buffer
		data.Write(w.Data)
		if w.Stream != nil {
			must(t, w.Stream(&data))
		}
		if b, err := got.Bytes(w.Name); err != nil || !bytes.Equal(b, data.Bytes()) {
			t.Fatalf("tensor %q: %v, %v", w.Name, b, err)
		}
	}
}

func openStore(t testing.TB, fsys checkpoint.FS, out string) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.OpenStore(fsys, out)
	must(t, err)
	return s
}

// storeIn is the store of an output folder, which need not exist.
func storeIn(t testing.TB, out string) *checkpoint.Store {
	t.Helper()
	return openStore(t, quick(t, filepath.Dir(out)), filepath.Base(out))
}

func save(t testing.TB, s *checkpoint.Store, c checkpoint.Content) string {
	t.Helper()
	dir, err := s.Save(context.Background(), c)
	must(t, err)
	return dir
}

// unsynced is the operating system's file system without its slow part.
type unsynced struct{ checkpoint.FS }

type unsyncedFile struct{ checkpoint.File }

func (unsyncedFile) Sync() error { return nil }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) Create(name string) (checkpoint.File, error) {
	f, err := u.FS.Create(name)
	return unsyncedFile{f}, err
}

func quick(t testing.TB, dir string) checkpoint.FS {
	t.Helper()
	return unsynced{openFS(t, dir)}
}

func openFS(t testing.TB, dir string) checkpoint.FS {
	t.Helper()
	fsys, err := checkpoint.OpenFS(dir)
	must(t, err)
	t.Cleanup(func() { must(t, fsys.Close()) })
	return fsys
}

// saved is a store on the disk with checkpoints of the given steps.
func saved(t testing.TB, steps ...int) (s *checkpoint.Store, out string) {
	t.Helper()
	out = t.TempDir()
	s = storeIn(t, out)
	for _, step := range steps {
		save(t, s, content(step, ""))
	}
	return s, out
}

func stepDir(out string, step int) string {
	return filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", step))
}

// listing is the sorted names in a folder.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// tree describes everything in a folder, byte for byte.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(path, dir), d.Type())
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			must(t, err)
			fmt.Fprintf(&b, " → %s", link)
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(&b, " %d %x", len(data), sha256.Sum256(data))
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// forge replaces the manifest by one that is valid and doesn't list the file.
func forge(t testing.TB, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	must(t, err)
	text, err = checkpoint.WithoutFile(text, name)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o644))
}
