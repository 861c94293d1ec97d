package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
)

// Of a store that can't be listed nothing is known: nobody takes it for an empty one,
// and nobody changes it.
func TestUnreadableStore(t *testing.T) {
	out := t.TempDir()
	fsys := faultfs.New(quick(t, out))
	s := openStore(t, fsys, ".")
	save(t, s, small(100, ""))
	save(t, s, small(200, ""))
	must(t, s.SetLast(200))
	must(t, s.SetBest(100))
	before := tree(t, out)
	fsys.Set("checkpoints", faultfs.Fault{Open: syscall.EACCES})
	for name, use := range map[string]func() error{
		"OpenStore": func() error { _, err := checkpoint.OpenStore(fsys, "."); return err },
		"Steps":     func() error { _, err := s.Steps(); return err },
		"Newest":    func() error { _, _, err := s.Newest(); return err },
		"At":        func() error { _, err := s.At(100); return err },
		"Verify":    func() error { _, err := s.Verify(100); return err },
		"Look":      func() error { _, err := s.Look(100, ""); return err },
		"Prune":     func() error { _, err := s.Prune(1); return err },
		"SetAside":  func() error { _, err := s.SetAside(100, checkpoint.DamagedSuffix); return err },
		"Clean":     s.Clean,
		"SetLast":   func() error { return s.SetLast(100) },
		"SetBest":   func() error { return s.SetBest(200) },
		"DropBest":  s.DropBest,
		"Save":      func() error { _, err := s.Save(context.Background(), small(300, "")); return err },
	} {
		err := use()
		if !errors.Is(err, checkpoint.ErrUnreadable) || !errors.Is(err, fs.ErrPermission) || errors.Is(err, checkpoint.ErrNone) ||
			!strings.Contains(err.Error(), filepath.Join(out, "checkpoints")) {
			t.Errorf("%s: %v, want ErrUnreadable with the place", name, err)
		}
		if after := tree(t, out); after != before {
			t.Fatalf("%s: there was\n%sthere is\n%s", name, before, after)
		}
	}
}

// A pointer that can't be read may point to any checkpoint: it is not taken for none.
func TestUnreadablePointers(t *testing.T) {
	out := t.TempDir()
	fsys := faultfs.New(noLinks{quick(t, out)})
	s := openStore(t, fsys, ".")
	save(t, s, small(100, ""))
	save(t, s, small(200, ""))
	must(t, s.SetLast(100))
	must(t, s.SetBest(100))
	before := tree(t, out)
	last := map[string]func() error{
		"Last":          func() error { _, _, err := s.Last(); return err },
		"Newest":        func() error { _, _, err := s.Newest(); return err },
		"Prune":         func() error { _, err := s.Prune(1); return err },
		"CheckPointers": s.CheckPointers,
	}
	best := map[string]func() error{
		"Best":          func() error { _, _, err := s.Best(); return err },
		"Prune":         last["Prune"],
		"CheckPointers": s.CheckPointers,
		"DropBest":      s.DropBest,
	}
	for pointer, uses := range map[string]map[string]func() error{"last": last, "best": best} {
		for fault, is := range map[faultfs.Fault]error{{Open: syscall.EACCES}: fs.ErrPermission, {Read: syscall.EIO}: syscall.EIO} {
			fsys.Set("checkpoints/"+pointer, fault)
			for name, use := range uses {
				err := use()
				if !errors.Is(err, is) || !strings.Contains(err.Error(), "make it readable, or remove it") ||
					!strings.Contains(err.Error(), filepath.Join("checkpoints", pointer)) {
					t.Errorf("%s, %s, %v: %v, want its cause, place and what to do", pointer, name, is, err)
				}
			}
			fsys.Set("checkpoints/"+pointer, faultfs.Fault{})
		}
	}
	if after := tree(t, out); after != before {
		t.Errorf("there was\n%sthere is\n%s", before, after)
	}
	must(t, s.CheckPointers())
}

// What SetLast and SetBest can replace is no hindrance; a folder in a pointer's place is.
func TestCheckPointers(t *testing.T) {
	s, out := saved(t, 100)
	must(t, s.CheckPointers()) // there are none
	best := filepath.Join(out, "checkpoints", "best")
	must(t, os.Symlink("/etc/passwd", best))
	must(t, s.CheckPointers())
	must(t, s.DropBest())
	if _, err := os.Lstat(best); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("best is still there: %v", err)
	}
	must(t, os.Mkdir(best, 0o755))
	err := s.CheckPointers()
	if err == nil || !strings.Contains(err.Error(), best) || strings.Contains(err.Error(), syscall.EINVAL.Error()) {
		t.Errorf("a folder: %v, want its path and no invalid argument", err)
	}
	if err := s.DropBest(); err == nil {
		t.Error("a folder in best's place was dropped")
	}
	if _, err := os.Lstat(best); err != nil {
		t.Errorf("the folder is gone: %v", err)
	}
}

// Look reads one small file, and says of it what is wrong; of the others it compares the
// lengths alone.
func TestLook(t *testing.T) {
	out := t.TempDir()
	fsys := faultfs.New(quick(t, out))
	s := openStore(t, fsys, ".")
	dir := save(t, s, small(100, ""))
	text, err := os.ReadFile(filepath.Join(dir, "trainer.json"))
	must(t, err)
	turned := bytes.Clone(text)
	turned[0] ^= 1
	for _, c := range []struct {
		name  string
		data  []byte
		fault faultfs.Fault
		asked string
		state checkpoint.State
		says  string
	}{
		{"whole", text, faultfs.Fault{}, "trainer.json", checkpoint.StateIntact, ""},
		{"another is asked for", turned, faultfs.Fault{}, "config.json", checkpoint.StateIntact, ""},
		{"other bytes", turned, faultfs.Fault{}, "trainer.json", checkpoint.StateDamaged, "the manifest says"},
		{"cut", text[:3], faultfs.Fault{}, "trainer.json", checkpoint.StateDamaged, "3 of"},
		{"longer", append(bytes.Clone(text), 0), faultfs.Fault{}, "", checkpoint.StateDamaged, "bytes instead of"},
		{"read error", text, faultfs.Fault{Read: syscall.EIO}, "trainer.json", checkpoint.StateUnreadable, syscall.EIO.Error()},
		{"read error of another", text, faultfs.Fault{Read: syscall.EIO}, "", checkpoint.StateIntact, ""},
		{"permission", text, faultfs.Fault{Open: syscall.EACCES}, "", checkpoint.StateUnreadable, "permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(dir, "trainer.json"), c.data, 0o644))
			fsys.Set("checkpoints/step-00000100/trainer.json", c.fault)
			defer fsys.Set("checkpoints/step-00000100/trainer.json", faultfs.Fault{})
			look, err := s.Look(100, c.asked)
			must(t, err)
			if look.State() != c.state || !strings.Contains(look.String(), c.says) {
				t.Errorf("%v, want the state %s and %q", look.Report, c.state, c.says)
			}
			var want []byte
			if c.state == checkpoint.StateIntact && c.asked == "trainer.json" {
				want = text
			}
			if c.asked == "trainer.json" && !bytes.Equal(look.File, want) {
				t.Errorf("the file reads %q, want %q", look.File, want)
			}
			if look.Written.IsZero() || look.Manifest.Step != 100 {
				t.Errorf("written %v, manifest %+v", look.Written, look.Manifest)
			}
		})
	}
	if _, err := s.Look(200, ""); !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), "step 200") {
		t.Errorf("a step that isn't there: %v", err)
	}
}

// freeBytes is a file system that knows less of its free space, or nothing.
type freeBytes struct {
	checkpoint.FS
	err error
}

func (f freeBytes) FreeBytes(string) (int64, error) { return 0, f.err }

// A system that doesn't tell its free space is written to; one that fails to tell isn't.
func TestFreeSpaceUnknown(t *testing.T) {
	for _, c := range []struct {
		err, is error
		left    int
	}{
		{errors.ErrUnsupported, nil, 1}, {syscall.EIO, syscall.EIO, 0}, {nil, checkpoint.ErrNoSpace, 0},
	} {
		out := t.TempDir()
		s := openStore(t, freeBytes{quick(t, out), c.err}, ".")
		if _, err := s.Save(context.Background(), small(100, "")); !errors.Is(err, c.is) {
			t.Errorf("free space %v: %v, want %v", c.err, err, c.is)
		}
		if steps, err := s.Steps(); len(steps) != c.left || err != nil {
			t.Errorf("free space %v: steps %d, %v, want %d of them", c.err, steps, err, c.left)
		}
	}
}

// A tensor, or a number, that the checkpoint or the caller's memory hasn't is an error
// with its name and its sizes.
func TestTensorsRefuse(t *testing.T) {
	s, _ := saved(t)
	save(t, s, checkpoint.Content{Step: 100, Model: []safetensors.Tensor{safetensors.F32("w", []int{2}, []float32{1, 2})}})
	c, err := s.At(100)
	must(t, err)
	defer func() { must(t, c.Close()) }()
	if b, err := c.Model().Bytes("x"); b != nil || err == nil || !strings.Contains(err.Error(), `no tensor "x" among its 1`) {
		t.Errorf("a tensor that isn't there: %v, %v", b, err)
	}
	if err := c.Model().Float32("x", nil); err == nil || !strings.Contains(err.Error(), `no tensor "x" among its 1`) {
		t.Errorf("numbers of a tensor that isn't there: %v", err)
	}
	if _, ok := c.Model().Info("x"); ok {
		t.Error("something is known of a tensor that isn't there")
	}
	into := []float32{7, 7, 7}
	if err := c.Model().Float32("w", into); err == nil || !strings.Contains(err.Error(), `tensor "w", F32 [2]`) {
		t.Errorf("two numbers into three: %v", err)
	}
}

// A pointer that can't be dropped is an error that says which, and the checkpoints stay.
func TestDropBestFails(t *testing.T) {
	base := t.TempDir()
	fsys, err := crashfs.New(base)
	must(t, err)
	s := openStore(t, fsys, ".")
	save(t, s, small(100, ""))
	save(t, s, small(200, ""))
	must(t, s.SetBest(200))
	_, err = s.SetAside(200, checkpoint.SupersededSuffix)
	must(t, err)
	before := tree(t, base)
	fsys.FailAt(0, syscall.EIO)
	if err := s.DropBest(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), filepath.Join(base, "checkpoints", "best")) {
		t.Errorf("error %v, want its cause and the pointer's path", err)
	}
	if after := tree(t, base); after != before {
		t.Errorf("there was\n%sthere is\n%s", before, after)
	}
	must(t, s.DropBest())
	if step, ok, err := s.Best(); ok || err != nil {
		t.Errorf("best: %d, %v, %v", step, ok, err)
	}
}
