package checkpoint_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
)

// whole is content in one file of weights: every file that a run's checkpoint has.
func whole(step int) checkpoint.Content {
	c := content(step, "")
	c.MaxShardBytes = 0
	return c
}

var wholeFiles = []string{"config.json", "config.toml", "manifest.json", "model.safetensors", "optimizer.safetensors", "tokenizer.json",
	"trainer.json"}

// kinds are the ways in which a file can be unreadable without being damaged.
var kinds = []struct {
	name  string
	fault faultfs.Fault
	is    error // the cause, which can be asked for
	again bool  // it may pass by itself
}{
	{"permission", faultfs.Fault{Open: syscall.EACCES}, fs.ErrPermission, false},
	{"too many open files", faultfs.Fault{Open: syscall.EMFILE}, syscall.EMFILE, true},
	{"input/output error", faultfs.Fault{Read: syscall.EIO}, syscall.EIO, true},
	{"short read", faultfs.Fault{Short: true}, nil, true},
}

// A file that can't be read is never taken for a damaged one: nothing older is opened
// in its place. When it can be read again, its checkpoint is the newest.
func TestUnreadableNeverFallsBack(t *testing.T) {
	out := t.TempDir()
	fsys := faultfs.New(quick(t, out))
	s := openStore(t, fsys, ".")
	save(t, s, whole(100))
	dir := save(t, s, whole(200))
	must(t, s.SetLast(200))
	if got := listing(t, dir); !slices.Equal(got, wholeFiles) {
		t.Fatalf("files %q, want %q", got, wholeFiles)
	}
	before := tree(t, out)
	// refused makes sure that the checkpoint is refused, as one of a state, and that
	// nothing has changed.
	refused := func(t *testing.T, state checkpoint.State, is error, again bool, want ...string) {
		t.Helper()
		c, damaged, err := s.Newest()
		if err == nil {
			t.Fatalf("step %d was opened in its place", c.Step())
		}
		if len(damaged) > 0 || is != nil && !errors.Is(err, is) {
			t.Errorf("damaged %v, error %v is not %v", damaged, err, is)
		}
		for _, text := range append(want, "step-00000200") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q, want %q in it", err, text)
			}
		}
		if checkpoint.TryAgain(err) != again {
			t.Errorf("TryAgain(%v) is %v", err, !again)
		}
		if report, err := s.Verify(200); err != nil || report.State() != state {
			t.Errorf("Verify says %v, %v, want the state %s", report, err, state)
		}
		if after := tree(t, out); after != before {
			t.Errorf("there was\n%sthere is\n%s", before, after)
		}
	}
	for _, name := range wholeFiles {
		file := "checkpoints/step-00000200/" + name
		for _, kind := range kinds {
			t.Run(kind.name+" of "+name, func(t *testing.T) {
				fsys.Set(file, kind.fault)
				defer fsys.Set(file, faultfs.Fault{})
				refused(t, checkpoint.StateUnreadable, checkpoint.ErrUnreadable, kind.again, name, "make it readable")
				if _, _, err := s.Newest(); kind.is != nil && !errors.Is(err, kind.is) {
					t.Errorf("%v hides its cause", err)
				}
			})
		}
	}
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		t.Run("no memory to map "+name, func(t *testing.T) {
			fsys.Set("checkpoints/step-00000200/"+name, faultfs.Fault{Map: syscall.ENOMEM})
			defer fsys.Set("checkpoints/step-00000200/"+name, faultfs.Fault{})
			if _, _, err := s.Newest(); !errors.Is(err, checkpoint.ErrUnreadable) || !errors.Is(err, syscall.ENOMEM) || !checkpoint.TryAgain(err) {
				t.Errorf("error %v", err)
			}
		})
	}
	for _, folder := range []string{"checkpoints", "checkpoints/step-00000200"} {
		t.Run("permission of "+folder, func(t *testing.T) {
			fsys.Set(folder, faultfs.Fault{Open: syscall.EACCES})
			defer fsys.Set(folder, faultfs.Fault{})
			if c, _, err := s.Newest(); !errors.Is(err, checkpoint.ErrUnreadable) || !errors.Is(err, fs.ErrPermission) ||
				!strings.Contains(err.Error(), folder) {
				t.Errorf("%v, %v", c, err)
			}
		})
	}
	c, damaged, err := s.Newest()
	if err != nil || damaged != nil || c.Step() != 200 {
		t.Fatalf("readable again: %v, %v", damaged, err)
	}
	checkContent(t, c, whole(200))
	must(t, c.Close())
}

// change puts something else in the place of a file for the length of a test.
func change(t *testing.T, path string, to func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	t.Cleanup(func() {
		must(t, os.RemoveAll(path))
		must(t, os.WriteFile(path, data, 0o644))
	})
	must(t, os.Remove(path))
	if changed := to(bytes.Clone(data)); changed != nil {
		must(t, os.WriteFile(path, changed, 0o644))
	}
}

// What a newer program wrote, what is not there, and what is no file of the
// checkpoint's own prove nothing either.
func TestNeitherWholeNorDamaged(t *testing.T) {
	out := t.TempDir()
	s := storeIn(t, out)
	save(t, s, whole(100))
	dir := save(t, s, whole(200))
	refused := func(t *testing.T, state checkpoint.State, is error, want string) {
		t.Helper()
		before := tree(t, out)
		c, damaged, err := s.Newest()
		if err == nil {
			t.Fatalf("step %d was opened in its place", c.Step())
		}
		if !errors.Is(err, is) || errors.Is(err, checkpoint.ErrDamaged) || len(damaged) > 0 || checkpoint.TryAgain(err) {
			t.Errorf("damaged %v, error %v, want %v", damaged, err, is)
		}
		for _, text := range []string{want, "step-00000200"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q, want %q in it", err, text)
			}
		}
		if report, err := s.Verify(200); err != nil || report.State() != state {
			t.Errorf("Verify says %v, %v, want the state %s", report, err, state)
		}
		if look, err := s.Look(200, "trainer.json"); err != nil || look.State() != state {
			t.Errorf("Look says %v, %v, want the state %s", look.Report, err, state)
		}
		if after := tree(t, out); after != before {
			t.Errorf("there was\n%sthere is\n%s", before, after)
		}
	}
	t.Run("a newer version", func(t *testing.T) {
		change(t, filepath.Join(dir, "manifest.json"), func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"format_version": 1`), []byte(`"format_version": 2`), 1)
		})
		refused(t, checkpoint.StateTooNew, checkpoint.ErrVersion, "version 2, but this program knows only 1")
	})
	for _, name := range wholeFiles {
		t.Run(name+" is missing", func(t *testing.T) {
			change(t, filepath.Join(dir, name), func([]byte) []byte { return nil })
			refused(t, checkpoint.StateMissing, checkpoint.ErrMissing, name)
		})
		t.Run(name+" is a link", func(t *testing.T) {
			change(t, filepath.Join(dir, name), func([]byte) []byte { return nil })
			must(t, os.Symlink(filepath.Join("..", "step-00000100", name), filepath.Join(dir, name)))
			refused(t, checkpoint.StateUnreadable, checkpoint.ErrUnreadable, name+" is a symbolic link")
		})
		t.Run(name+" is a folder", func(t *testing.T) {
			change(t, filepath.Join(dir, name), func([]byte) []byte { return nil })
			must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			refused(t, checkpoint.StateUnreadable, checkpoint.ErrUnreadable, name+" is not a regular file")
		})
	}
	t.Run("damaged and missing", func(t *testing.T) {
		change(t, filepath.Join(dir, "trainer.json"), func(b []byte) []byte { return b[:3] })
		change(t, filepath.Join(dir, "config.json"), func([]byte) []byte { return nil })
		if _, _, err := s.Newest(); !errors.Is(err, checkpoint.ErrMissing) {
			t.Errorf("error %v", err)
		}
	})
	must(t, os.Rename(dir, dir+".kept"))
	t.Run("an empty folder", func(t *testing.T) {
		must(t, os.Mkdir(dir, 0o755))
		refused(t, checkpoint.StateMissing, checkpoint.ErrMissing, "manifest.json: missing")
		must(t, os.Remove(dir))
	})
	t.Run("a link", func(t *testing.T) {
		must(t, os.Symlink("step-00000200.kept", dir))
		refused(t, checkpoint.StateUnreadable, checkpoint.ErrUnreadable, "is a symbolic link")
		must(t, os.Remove(dir))
	})
	t.Run("a file", func(t *testing.T) {
		must(t, os.WriteFile(dir, nil, 0o644))
		refused(t, checkpoint.StateUnreadable, checkpoint.ErrUnreadable, "is not a folder")
		must(t, os.Remove(dir))
	})
	must(t, os.Rename(dir+".kept", dir))
	c, damaged, err := s.Newest()
	if err != nil || damaged != nil || c.Step() != 200 {
		t.Fatalf("put right again: %v, %v", damaged, err)
	}
	must(t, c.Close())
}

// Of every file: cut at several places, a bit turned at several places, a byte more.
// The older checkpoint is found, the report names the file, and what is set aside is
// what was there, byte for byte.
func TestDamageFallsBack(t *testing.T) {
	for _, shards := range []bool{false, true} {
		c := whole
		if shards {
			c = func(step int) checkpoint.Content { return content(step, "") }
		}
		out := t.TempDir()
		s := storeIn(t, out)
		save(t, s, c(100))
		dir := save(t, s, c(200))
		for _, name := range listing(t, dir) {
			t.Run(name, func(t *testing.T) {
				data, err := os.ReadFile(filepath.Join(dir, name))
				must(t, err)
				for _, n := range []int{0, 1, 7, len(data) / 2, len(data) - 1} {
					checkFallsBack(t, s, dir, name, data[:min(n, len(data)-1)])
				}
				for _, bit := range []int{0, 8*9 + 1, 4 * len(data), 8*len(data) - 8, 8*len(data) - 1} {
					bit = min(bit, 8*len(data)-1)
					turned := slices.Clone(data)
					turned[bit/8] ^= 1 << (bit % 8)
					checkFallsBack(t, s, dir, name, turned)
				}
				checkFallsBack(t, s, dir, name, append(slices.Clone(data), ' '))
			})
		}
	}
}

func checkFallsBack(t *testing.T, s *checkpoint.Store, dir, name string, data []byte) {
	t.Helper()
	t.Run("", func(t *testing.T) {
		change(t, filepath.Join(dir, name), func([]byte) []byte { return append([]byte{}, data...) })
		before := tree(t, dir)
		c, damaged, err := s.Newest()
		if err != nil {
			t.Fatal(err)
		}
		must(t, c.Close())
		if c.Step() != 100 || len(damaged) != 1 || damaged[0].Step != 200 || damaged[0].Path != dir ||
			!errors.Is(damaged[0].Err, checkpoint.ErrDamaged) ||
			!strings.Contains(damaged[0].Err.Error(), name) || !strings.Contains(damaged[0].Err.Error(), "step-00000200") {
			t.Fatalf("found step %d, damaged %v", c.Step(), damaged)
		}
		if report, err := s.Verify(200); err != nil || report.State() != checkpoint.StateDamaged {
			t.Errorf("Verify says %v, %v", report, err)
		}
		path, err := s.SetAside(200, "damaged")
		must(t, err)
		if after := tree(t, path); after != before {
			t.Errorf("set aside is\n%sthere was\n%s", after, before)
		}
		must(t, os.Rename(path, dir))
	})
}
