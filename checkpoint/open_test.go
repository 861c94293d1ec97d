package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// foreign writes a directory as other programs do.
func foreign(t *testing.T, files map[string]string, tensors map[string][]safetensors.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name, ts := range tensors {
		var b bytes.Buffer
		must(t, safetensors.Write(&b, nil, ts))
		must(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
	}
	return dir
}

func one(name string, v float32) safetensors.Tensor {
	return safetensors.F32(name, []int{1}, []float32{v})
}

const foreignIndex = `{"metadata":{"total_size":8.0,"made":[1,{"by":"hand"}]},"weight_map":{"a":"model-1-of-2.safetensors","b":"model-2-of-2.safetensors"}}`

func TestForeignDirectory(t *testing.T) {
	half := safetensors.Tensor{Name: "h", DType: "F16", Shape: []int{2}, Data: []byte{0, 0x3c, 0, 0xc0}}
	brain := safetensors.Tensor{Name: "b", DType: "BF16", Shape: []int{1}, Data: []byte{0x20, 0x40}}
	ids := safetensors.Tensor{Name: "ids", DType: "I64", Shape: []int{0}}
	dir := foreign(t, map[string]string{"config.json": "{}"},
		map[string][]safetensors.Tensor{"model.safetensors": {half, brain, ids}})
	c, err := checkpoint.Open(dir)
	must(t, err)
	defer func() { must(t, c.Close()) }()
	if c.Manifest != nil || c.Step() != 0 || len(c.Optimizer().Names()) != 0 {
		t.Errorf("%+v", c)
	}
	v := make([]float32, 2)
	if err := c.Model().Float32("h", v); err != nil || !slices.Equal(v, []float32{1, -2}) {
		t.Errorf("h: %v, %v", v, err)
	}
	if err := c.Model().Float32("b", v[:1]); err != nil || v[0] != 2.5 {
		t.Errorf("b: %v, %v", v[0], err)
	}
	if err := c.Model().Float32("ids", nil); err == nil || !strings.Contains(err.Error(), "I64") {
		t.Errorf("ids: %v", err)
	}
	if text, err := c.File("config.json"); err != nil || string(text) != "{}" {
		t.Errorf("config.json: %q, %v", text, err)
	}
	if _, err := c.File("tokenizer.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tokenizer.json: %v", err)
	}
}

func TestForeignShards(t *testing.T) {
	first, second := "model-1-of-2.safetensors", "model-2-of-2.safetensors"
	// What a shard has beside what the index names is there too.
	dir := foreign(t, map[string]string{"model.safetensors.index.json": foreignIndex},
		map[string][]safetensors.Tensor{first: {one("a", 1)}, second: {one("b", 2), one("other", 3)}})
	c, err := checkpoint.Open(dir)
	must(t, err)
	if got := c.Model().Names(); !slices.Equal(got, []string{"a", "b", "other"}) {
		t.Errorf("names %q", got)
	}
	v := make([]float32, 1)
	if err := c.Model().Float32("b", v); err != nil || v[0] != 2 {
		t.Errorf("b: %v, %v", v, err)
	}
	must(t, c.Close())
}

func TestOpenRefuses(t *testing.T) {
	first, second := "model-1-of-2.safetensors", "model-2-of-2.safetensors"
	index := func(text string) map[string]string {
		return map[string]string{"model.safetensors.index.json": text}
	}
	for _, c := range []struct {
		name string
		dir  string
		is   error
		want string
	}{
		{"an empty folder", foreign(t, nil, nil), checkpoint.ErrNotCheckpoint, "neither model.safetensors nor model.safetensors.index.json"},
		{"no folder", filepath.Join(t.TempDir(), "gone"), fs.ErrNotExist, "gone"},
		{"not safetensors", foreign(t, map[string]string{"model.safetensors": "hello, world"}, nil), safetensors.ErrFormat, "model.safetensors"},
		{"a truncated shard", foreign(t, map[string]string{"model.safetensors": "\x10\x00\x00\x00\x00\x00\x00\x00{"}, nil),
			safetensors.ErrTruncated, "model.safetensors"},
		{"a shard is missing", foreign(t, index(foreignIndex), map[string][]safetensors.Tensor{first: {one("a", 1)}}), fs.ErrNotExist, second},
		{"a tensor is missing", foreign(t, index(foreignIndex), map[string][]safetensors.Tensor{first: {one("a", 1)}, second: {one("c", 1)}}),
			nil, second + ` has no tensor "b"`},
		{"a tensor in two shards", foreign(t, index(foreignIndex), map[string][]safetensors.Tensor{first: {one("a", 1), one("b", 9)},
			second: {one("b", 2)}}), nil, second + ` has the tensor "b", but another shard has it, too`},
		{"a tensor in the wrong shard", foreign(t, index(foreignIndex), map[string][]safetensors.Tensor{first: {one("a", 1), one("b", 1)},
			second: {one("c", 1)}}), nil, second + ` has no tensor "b"`},
		{"a shard outside", foreign(t, index(`{"weight_map":{"a":"../model.safetensors"}}`), nil), nil, `"../model.safetensors" is not allowed`},
		{"a bad manifest", foreign(t, map[string]string{"manifest.json": `{"format_version":1}`}, nil), checkpoint.ErrDamaged,
			"manifest.json: malformed: the manifest does not match its own checksum"},
		{"a newer format", foreign(t, map[string]string{"manifest.json": `{"format_version":2}`}, nil), checkpoint.ErrVersion,
			"version 2, but this program knows only 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := checkpoint.Open(c.dir)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// Nothing outside the folder is opened, wherever a link stands.
func TestLinksAreRefused(t *testing.T) {
	away := foreign(t, nil, map[string][]safetensors.Tensor{"model.safetensors": {one("a", 1)}})
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(away, "model.safetensors"), filepath.Join(dir, "model.safetensors")))
	if _, err := checkpoint.Open(dir); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to the weights: %v", err)
	}
	dir = foreign(t, nil, map[string][]safetensors.Tensor{"model.safetensors": {one("a", 1)}})
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "config.json")))
	c, err := checkpoint.Open(dir)
	must(t, err)
	if text, err := c.File("config.json"); err == nil {
		t.Errorf("config.json reads %q", text)
	}
	must(t, c.Close())
	// The folder itself may be reached through a link, as by `last`.
	link := filepath.Join(t.TempDir(), "last")
	must(t, os.Symlink(away, link))
	c, err = checkpoint.Open(link)
	must(t, err)
	must(t, c.Close())
}

// A file that the manifest doesn't list is not there.
func TestUnlistedFileIsIgnored(t *testing.T) {
	s, out := saved(t)
	want := content(100, "")
	save(t, s, want)
	for _, name := range []string{"model.safetensors", "notes.json"} {
		must(t, os.WriteFile(filepath.Join(stepDir(out, 100), name), []byte("unverified"), 0o644))
	}
	c, err := checkpoint.Open(stepDir(out, 100))
	must(t, err)
	checkContent(t, c, want)
	if _, err := c.File("notes.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("notes.json: %v", err)
	}
	must(t, c.Close())
}

func TestResolve(t *testing.T) {
	model := foreign(t, nil, map[string][]safetensors.Tensor{"model.safetensors": {one("a", 1)}})
	if got, err := checkpoint.Resolve(model); err != nil || got != model {
		t.Errorf("a model directory: %s, %v", got, err)
	}

	s, out := saved(t, 100, 200, 300)
	must(t, os.WriteFile(filepath.Join(stepDir(out, 300), "trainer.json"), nil, 0o644))
	for _, c := range []struct{ name, path, want string }{
		{"a checkpoint", stepDir(out, 100), stepDir(out, 100)},
		{"a run without last", out, stepDir(out, 200)},
		{"its checkpoints folder", filepath.Join(out, "checkpoints"), stepDir(out, 200)},
	} {
		if got, err := checkpoint.Resolve(c.path); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
	must(t, s.SetLast(100))
	if got, err := checkpoint.Resolve(out); err != nil || got != stepDir(out, 100) {
		t.Errorf("last is 100: %s, %v", got, err)
	}
	must(t, os.RemoveAll(stepDir(out, 100)))
	if got, err := checkpoint.Resolve(out); err != nil || got != stepDir(out, 200) {
		t.Errorf("last points to nothing: %s, %v", got, err)
	}

	empty := t.TempDir()
	_, err := checkpoint.Resolve(empty)
	if !errors.Is(err, checkpoint.ErrNotCheckpoint) {
		t.Errorf("an empty folder: %v", err)
	}
	for _, want := range []string{empty, "model.safetensors", "step-*", "checkpoints/"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q is not in it", err, want)
		}
	}
	if _, err := checkpoint.Resolve(filepath.Join(model, "model.safetensors")); !errors.Is(err, checkpoint.ErrNotCheckpoint) {
		t.Errorf("a file: %v", err)
	}
	if _, err := checkpoint.Resolve(filepath.Join(empty, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	_, broken := saved(t, 100)
	must(t, os.Truncate(filepath.Join(stepDir(broken, 100), "manifest.json"), 0))
	if _, err := checkpoint.Resolve(broken); !errors.Is(err, checkpoint.ErrAllDamaged) {
		t.Errorf("all damaged: %v", err)
	}
	must(t, os.Remove(filepath.Join(stepDir(broken, 100), "manifest.json")))
	if _, err := checkpoint.Resolve(broken); !errors.Is(err, checkpoint.ErrMissing) {
		t.Errorf("the manifest is missing: %v", err)
	}
	must(t, os.RemoveAll(stepDir(broken, 100)))
	must(t, os.Symlink(stepDir(out, 200), stepDir(broken, 100)))
	must(t, storeIn(t, broken).SetLast(100))
	if _, err := checkpoint.Resolve(broken); !errors.Is(err, checkpoint.ErrUnreadable) ||
		!strings.Contains(err.Error(), stepDir(broken, 100)+" is a symbolic link") {
		t.Errorf("a link: %v", err)
	}
}

func TestVerify(t *testing.T) {
	_, out := saved(t, 100, 200, 300)
	damaged, rotten := stepDir(out, 200), stepDir(out, 300)
	change := func(dir, name string, to func([]byte) []byte) {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, to(data), 0o644))
	}
	change(damaged, "model-00001-of-00002.safetensors", func(b []byte) []byte { return b[:96] })
	change(damaged, "optimizer.safetensors", func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	change(damaged, "config.toml", func(b []byte) []byte { return append(b, '\n') })
	must(t, os.Remove(filepath.Join(damaged, "config.json")))
	must(t, os.Remove(filepath.Join(damaged, "trainer.json")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(damaged, "trainer.json")))
	must(t, os.WriteFile(filepath.Join(damaged, "notes.txt"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(damaged, "a \x1b[31m name"), nil, 0o644))
	change(rotten, "manifest.json", func(b []byte) []byte { return bytes.Replace(b, []byte("300"), []byte("301"), 1) })
	bare := foreign(t, nil, map[string][]safetensors.Tensor{"model.safetensors": {one("a", 1)}})

	var text strings.Builder
	for _, dir := range []string{stepDir(out, 100), damaged, rotten, bare} {
		report, err := checkpoint.Verify(dir)
		must(t, err)
		if (report.Err() == nil) != (dir == stepDir(out, 100)) {
			t.Errorf("%s: %v", dir, report.Err())
		}
		text.WriteString(report.String())
	}
	got := strings.NewReplacer(filepath.Join(out, "checkpoints"), "CHECKPOINTS", bare, "FOREIGN").Replace(text.String())
	golden := filepath.Join("testdata", "verify.txt")
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got != string(want) {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
	if _, err := checkpoint.Verify(filepath.Join(out, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// Files that are each what the manifest says need not fit together.
func TestVerifyLooksAtTheWhole(t *testing.T) {
	s, out := saved(t)
	c := content(100, "")
	c.MaxShardBytes = 0
	save(t, s, c)
	if report, err := checkpoint.Verify(stepDir(out, 100)); err != nil || !report.Intact() {
		t.Fatalf("%v, %v", report, err)
	}
	forge(t, stepDir(out, 100), "model.safetensors")
	report, err := checkpoint.Verify(stepDir(out, 100))
	if err != nil || report.Intact() || !strings.Contains(report.Err().Error(), "not a checkpoint") {
		t.Errorf("%v, %v", report, err)
	}
	if _, err := checkpoint.Open(stepDir(out, 100)); !errors.Is(err, checkpoint.ErrNotCheckpoint) {
		t.Errorf("Open: %v", err)
	}
}

// A checkpoint is told from the one that comes into its place, also where the system
// gives the new folder the old one's number.
func TestAnotherTakesThePlace(t *testing.T) {
	dir := foreign(t, nil, map[string][]safetensors.Tensor{"model.safetensors": {one("a", 1)}})
	used := 0
	must(t, checkpoint.Meant(dir, func(string) bool {
		used++
		if used < 20 {
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), nil, 0o644))
		}
		return false
	}))
	if used != 20 {
		t.Errorf("it was used %d times, want 20: as often as another took its place, and once more", used)
	}
}

// Readers need no lock: the run removes what they read. Whoever reads turns to another
// checkpoint a bounded number of times, so the run removes no more than that beside one reading.
func TestReadersBesideARun(t *testing.T) {
	const perReading = 5
	s, out := saved(t, 1)
	must(t, s.SetLast(1))
	done, ended := make(chan struct{}), make(chan struct{})
	may := make(chan struct{}, perReading)
	t.Cleanup(func() {
		close(ended)
		<-done
	})
	go func() { // ends with the test
		defer close(done)
		for step := 2; step <= 60; step++ {
			select {
			case <-may:
			case <-ended:
				return
			}
			if _, err := s.Save(context.Background(), small(step, "")); err != nil {
				t.Error(err)
				return
			}
			if err := s.SetLast(step); err != nil {
				t.Error(err)
			}
			if _, err := s.Prune(1); err != nil {
				t.Error(err)
			}
		}
	}()
	reader := storeIn(t, out)
	paths := []string{out, filepath.Join(out, "checkpoints", "last")}
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		reading := func() {
			for len(may) < cap(may) {
				may <- struct{}{}
			}
		}
		reading()
		c, err := checkpoint.OpenAt(paths[i%2])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.File("trainer.json"); err != nil {
			t.Error(err)
		}
		must(t, c.Close())
		reading()
		if report, err := checkpoint.VerifyAt(paths[i%2]); err != nil || !report.Intact() {
			t.Fatalf("%v, %v", report, err)
		}
		steps, err := reader.Steps()
		must(t, err)
		for _, step := range steps {
			report, err := reader.Verify(step)
			if errors.Is(err, checkpoint.ErrNone) {
				continue
			}
			if err != nil || !report.Intact() {
				t.Fatalf("%v, %v", report, err)
			}
			look, err := reader.Look(step, "trainer.json")
			if errors.Is(err, checkpoint.ErrNone) {
				continue
			}
			if err != nil || !look.Intact() {
				t.Fatalf("%v, %v", look, err)
			}
		}
	}
}

// What is open stays so when its folder is removed.
func TestOpenOutlivesItsFolder(t *testing.T) {
	s, out := saved(t)
	want := content(100, "")
	for i := range 20 {
		want.Files[fmt.Sprintf("more-%02d.json", i)] = []byte("{}")
	}
	save(t, s, want)
	c, err := checkpoint.Open(stepDir(out, 100))
	must(t, err)
	must(t, os.RemoveAll(stepDir(out, 100)))
	for _, name := range []string{"config.json", "config.toml", "more-00.json"} {
		if data, err := c.File(name); err != nil || !bytes.Equal(data, want.Files[name]) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := c.File("absent.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that it never had: %v", err)
	}
	// Not all of many files are kept open. One that is gone is not taken for one that
	// never was.
	if _, err := c.File("more-19.json"); !errors.Is(err, checkpoint.ErrMissing) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	must(t, c.Close())
	must(t, c.Close())
}
