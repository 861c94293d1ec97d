package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// shared is content of which others hold every second tensor: they write it by what they see
// of the output folder.
func shared(c checkpoint.Content, tag string, fsys checkpoint.FS, out string) checkpoint.Content {
	theirs := make(map[string][]byte)
	take := func(all []safetensors.Tensor) []safetensors.Tensor {
		all = append([]safetensors.Tensor(nil), all...)
		for i := range all {
			if i%2 == 0 {
				theirs[all[i].Name] = bytesOf(all[i])
				all[i].Data, all[i].Stream, all[i].Absent = nil, nil, true
			}
		}
		return all
	}
	c.Model, c.Optimizer = take(c.Model), take(c.Optimizer)
	c.Others = &checkpoint.Others{Tag: tag, Write: func(ctx context.Context, places []checkpoint.Place) ([]uint32, error) {
		return checkpoint.WriteOwn(ctx, fsys, out, c.Step, tag, ownOf(places, theirs))
	}}
	return c
}

func bytesOf(t safetensors.Tensor) []byte {
	var b bytes.Buffer
	_, _ = t.WriteTo(&b)
	return b.Bytes()
}

func ownOf(places []checkpoint.Place, theirs map[string][]byte) (own []checkpoint.Own) {
	for _, p := range places {
		own = append(own, checkpoint.Own{File: p.File, Offset: p.Offset, Data: theirs[p.Tensor]})
	}
	return own
}

// The folder is the same to the byte, whoever wrote the tensors, in one file and in shards.
func TestOthersWriteTheSame(t *testing.T) {
	for name, c := range map[string]checkpoint.Content{"a file": small(100, ""), "shards": content(100, "")} {
		t.Run(name, func(t *testing.T) {
			alone, together := t.TempDir(), t.TempDir()
			save(t, storeIn(t, alone), c)
			dir := save(t, storeIn(t, together), shared(c, "attempt", openFS(t, together), "."))
			if want, got := tree(t, alone), tree(t, together); got != want {
				t.Errorf("others wrote\n%s\nalone it is\n%s", got, want)
			}
			report, err := checkpoint.Verify(dir)
			must(t, err)
			if !report.Intact() {
				t.Error(report)
			}
		})
	}
}

// Nothing that is not whole becomes a checkpoint, and nothing of it is left.
func TestOthersFail(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		write func(out string, own []checkpoint.Own, sums []uint32) ([]uint32, error)
		want  func(error) bool
	}{
		"an error": {func(string, []checkpoint.Own, []uint32) ([]uint32, error) { return nil, boom },
			func(err error) bool { return errors.Is(err, boom) }},
		"an end": {func(string, []checkpoint.Own, []uint32) ([]uint32, error) {
			cancel()
			return nil, ctx.Err()
		}, func(err error) bool { return errors.Is(err, context.Canceled) }},
		"too few": {func(_ string, _ []checkpoint.Own, sums []uint32) ([]uint32, error) { return sums[1:], nil },
			func(err error) bool { return err != nil }},
		"not here": {func(_ string, own []checkpoint.Own, sums []uint32) ([]uint32, error) {
			return sums, os.WriteFile(filepath.Join(t.TempDir(), own[0].File), own[0].Data, 0o600)
		}, isOthersError},
		"by a later writer": {func(out string, own []checkpoint.Own, sums []uint32) ([]uint32, error) {
			fsys := openFS(t, out)
			own[3].Data = []byte{1}
			if _, err := checkpoint.WriteOwn(context.Background(), fsys, ".", 100, "a", own[3:4]); err != nil {
				return nil, err
			}
			return sums, nil
		}, isOthersError},
		"a longer file": {func(out string, own []checkpoint.Own, sums []uint32) ([]uint32, error) {
			f, err := os.OpenFile(filepath.Join(out, "checkpoints", ".tmp-step-00000100-a", own[0].File), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return nil, err
			}
			_, err = f.WriteString("more")
			return sums, errors.Join(err, f.Close())
		}, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			s := storeIn(t, out)
			save(t, s, small(50, ""))
			all := small(100, "")
			theirs := make(map[string][]byte)
			for _, v := range append(all.Model, all.Optimizer...) {
				theirs[v.Name] = bytesOf(v)
			}
			others := shared(all, "a", openFS(t, out), ".")
			others.Others.Write = func(_ context.Context, places []checkpoint.Place) ([]uint32, error) {
				own := ownOf(places, theirs)
				var sums []uint32
				var err error
				if name == "not here" { // in a folder of the same name on another disk
					elsewhere := t.TempDir()
					must(t, os.CopyFS(elsewhere, os.DirFS(out)))
					sums, err = checkpoint.WriteOwn(context.Background(), openFS(t, elsewhere), ".", 100, "a", own)
				} else {
					sums, err = checkpoint.WriteOwn(context.Background(), openFS(t, out), ".", 100, "a", own)
				}
				must(t, err)
				return c.write(out, own, sums)
			}
			_, err := s.Save(ctx, others)
			if !c.want(err) {
				t.Errorf("error %v", err)
			}
			if got := listing(t, filepath.Join(out, "checkpoints")); len(got) != 1 || got[0] != "step-00000050" {
				t.Errorf("left: %q", got)
			}
		})
		if ctx.Err() != nil {
			ctx, cancel = context.WithCancel(context.Background())
		}
	}
	cancel()
}

func isOthersError(err error) bool {
	var e *checkpoint.OthersError
	return errors.As(err, &e) && len(e.Tensors) > 0
}

// What is to be written elsewhere than to its place is refused, and nothing is made.
func TestWriteOwnRefuses(t *testing.T) {
	const file = "model.safetensors"
	for name, c := range map[string]struct {
		tag  string
		step int
		own  checkpoint.Own
		want string
	}{
		"another attempt":     {"b", 100, checkpoint.Own{File: file}, "no such file"},
		"another step":        {"a", 101, checkpoint.Own{File: file}, "no such file"},
		"no such file":        {"a", 100, checkpoint.Own{File: "optimizer.safetensors"}, "no such file"},
		"a separator":         {"a", 100, checkpoint.Own{File: "../" + file}, "not allowed"},
		"a separator in tag":  {"a/../a", 100, checkpoint.Own{File: file}, "not allowed"},
		"no tag":              {"", 100, checkpoint.Own{File: file}, "not allowed"},
		"no step":             {"a", -1, checkpoint.Own{File: file}, "step -1"},
		"no file of tensors":  {"a", 100, checkpoint.Own{File: "trainer.json"}, "not a .safetensors file"},
		"a link":              {"a", 100, checkpoint.Own{File: "link.safetensors"}, "symbolic link"},
		"before the file":     {"a", 100, checkpoint.Own{File: file, Offset: -1, Data: []byte{1}}, "too few for a tensor"},
		"behind the file":     {"a", 100, checkpoint.Own{File: file, Offset: 8, Data: []byte{1}}, "too few for a tensor"},
		"over the file's end": {"a", 100, checkpoint.Own{File: file, Offset: 7, Data: []byte{1, 2}}, "too few for a tensor"},
		"more than the file":  {"a", 100, checkpoint.Own{File: file, Offset: 0, Data: make([]byte, 9)}, "too few for a tensor"},
		"far behind the file": {"a", 100, checkpoint.Own{File: file, Offset: 1<<63 - 1, Data: []byte{1, 2}}, "too few for a tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			dir := filepath.Join(out, "checkpoints", ".tmp-step-00000100-a")
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, file), make([]byte, 8), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "trainer.json"), make([]byte, 8), 0o644))
			must(t, os.Symlink(filepath.Join(dir, file), filepath.Join(dir, "link.safetensors")))
			before := tree(t, out)
			_, err := checkpoint.WriteOwn(context.Background(), openFS(t, out), ".", c.step, c.tag, []checkpoint.Own{c.own})
			if err == nil || !strings.Contains(err.Error(), c.want) && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if after := tree(t, out); after != before {
				t.Errorf("it changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

func TestWriteOwnStops(t *testing.T) {
	out := t.TempDir()
	dir := filepath.Join(out, "checkpoints", ".tmp-step-00000100-a")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), make([]byte, 8), 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := checkpoint.WriteOwn(ctx, openFS(t, out), ".", 100, "a", []checkpoint.Own{{File: "model.safetensors", Data: []byte{1}}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A tensor that is nowhere is no zero.
func TestAbsentWithoutOthers(t *testing.T) {
	out := t.TempDir()
	c := shared(small(100, ""), "a", openFS(t, out), ".")
	c.Others = nil
	if _, err := storeIn(t, out).Save(context.Background(), c); err == nil || !strings.Contains(err.Error(), "no other process writes") {
		t.Errorf("error %v", err)
	}
}
