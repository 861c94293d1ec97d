package folder_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *folder.Folder {
	t.Helper()
	d, err := folder.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// operations are all that touch a name and what is behind it.
var operations = map[string]func(d *folder.Folder, name string) error{
	"open":     func(d *folder.Folder, name string) error { return closed(d.Open(name)) },
	"append":   func(d *folder.Folder, name string) error { return closed(d.Append(name)) },
	"create":   func(d *folder.Folder, name string) error { return closed(d.Create(name)) },
	"mkdir":    func(d *folder.Folder, name string) error { return d.Mkdir(name) },
	"list":     func(d *folder.Folder, name string) error { _, err := d.ReadDir(name); return err },
	"sync":     func(d *folder.Folder, name string) error { return d.SyncDir(name) },
	"sub":      func(d *folder.Folder, name string) error { _, err := d.Sub(name); return err },
	"space":    func(d *folder.Folder, name string) error { _, err := d.FreeBytes(name); return err },
	"below":    func(d *folder.Folder, name string) error { return closed(d.Append(name + "/file")) },
	"make in":  func(d *folder.Folder, name string) error { return d.Mkdir(name + "/folder") },
	"link in":  func(d *folder.Folder, name string) error { return d.Symlink("x", name+"/link") },
	"rename":   func(d *folder.Folder, name string) error { return d.Rename(name+"/file", name+"/other") },
	"read in":  func(d *folder.Folder, name string) error { _, err := d.Readlink(name + "/link"); return err },
	"lock":     func(d *folder.Folder, name string) error { return locked(d.Lock(name)) },
	"purge in": func(d *folder.Folder, name string) error { return d.RemoveAll(name + "/file") },
}

func closed(f folder.File, err error) error {
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("written"))
	return errors.Join(err, f.Close())
}

func locked(f *os.File, _ bool, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// No operation goes through a link, to wherever it leads.
func TestLinksAreNotFollowed(t *testing.T) {
	for name, do := range operations {
		for kind, target := range map[string]string{"a file outside": "../out/file", "a folder outside": "../out", "nothing": "../out/new",
			"a file inside": "file", "a folder inside": "sub"} {
			for _, absolute := range []bool{false, true} {
				base := t.TempDir()
				dir := filepath.Join(base, "in")
				for _, path := range []string{"in/file", "in/sub/file", "out/file"} {
					write(t, filepath.Join(base, path), "mine")
				}
				to := target
				if absolute {
					to = filepath.Join(dir, target)
				}
				must(t, os.Symlink(to, filepath.Join(dir, "link")))
				if err := do(open(t, dir), "link"); err == nil {
					t.Errorf("%s of a link to %s succeeded", name, kind)
				} else if !strings.Contains(err.Error(), filepath.Join(dir, "link")) {
					t.Errorf("%s of a link to %s: %v does not name it", name, kind, err)
				}
				for _, path := range []string{"in/file", "in/sub/file", "out/file"} {
					if text := read(t, filepath.Join(base, path)); text != "mine" {
						t.Errorf("%s of a link to %s: %s holds %q", name, kind, path, text)
					}
				}
				for _, path := range []string{"in/sub", "out"} {
					if entries, err := os.ReadDir(filepath.Join(base, path)); err != nil || len(entries) != 1 {
						t.Errorf("%s of a link to %s: in %s there is %v, %v", name, kind, path, entries, err)
					}
				}
			}
		}
	}
}

func TestNamesThatLeadOut(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "file"), "mine")
	must(t, os.Mkdir(filepath.Join(base, "in"), 0o755))
	d := open(t, filepath.Join(base, "in"))
	for _, name := range []string{"..", "../file", "/etc/passwd", "x/../../file"} {
		for what, do := range operations {
			if err := do(d, name); err == nil {
				t.Errorf("%s of %s succeeded", what, name)
			}
		}
	}
	if text := read(t, filepath.Join(base, "file")); text != "mine" {
		t.Errorf("the file outside holds %q", text)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	must(t, closed(d.Append("a")))
	must(t, closed(d.Append("a")))
	if text := read(t, filepath.Join(dir, "a")); text != "writtenwritten" {
		t.Errorf("a holds %q", text)
	}
	if err := closed(d.Create("a")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("making a file that is there: %v", err)
	}
	for name, do := range map[string]func() error{
		"open":   func() error { return closed(d.Open("b")) },
		"list":   func() error { _, err := d.ReadDir("b"); return err },
		"sub":    func() error { _, err := d.Sub("b"); return err },
		"rename": func() error { return d.Rename("b", "c") },
	} {
		if err := do(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Join(dir, "b")) {
			t.Errorf("%s of what isn't there: %v", name, err)
		}
	}
	must(t, d.RemoveAll("b"))
	must(t, d.RemoveAll("b/c"))
	must(t, d.Mkdir("sub"))
	if err := d.Rename("a", "sub/a"); err == nil {
		t.Error("a file was renamed into another folder")
	}
	if err := closed(d.Open("sub")); err == nil || !strings.Contains(err.Error(), "sub is not a regular file") {
		t.Errorf("opening a folder: %v", err)
	}
	if _, err := d.ReadDir("a"); err == nil || !strings.Contains(err.Error(), "a is not a folder") {
		t.Errorf("listing a file: %v", err)
	}
	if _, err := folder.Open(filepath.Join(dir, "a")); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("a file for a folder: %v", err)
	}
	entries, err := d.ReadDir(".")
	if err != nil || len(entries) != 2 || entries[0].Name() != "a" || entries[1].Name() != "sub" {
		t.Errorf("listed: %v, %v", entries, err)
	}
}

// A link is removed, renamed and read itself.
func TestLinksThemselves(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "file"), "mine")
	d := open(t, dir)
	must(t, d.Symlink(outside, "link"))
	must(t, d.Rename("link", "other"))
	if target, err := d.Readlink("other"); err != nil || target != outside {
		t.Errorf("it points to %s, %v", target, err)
	}
	must(t, d.RemoveAll("other"))
	if text := read(t, filepath.Join(outside, "file")); text != "mine" {
		t.Errorf("outside there is %q", text)
	}
}

func TestSubOutlivesItsName(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "file"), "mine")
	d := open(t, dir)
	sub, err := d.Sub("sub")
	must(t, err)
	defer func() { must(t, sub.Close()) }()
	must(t, d.Rename("sub", "other"))
	write(t, filepath.Join(dir, "sub", "file"), "another's")
	if text, err := folder.ReadFile(sub, "file", 100); err != nil || string(text) != "mine" {
		t.Errorf("it holds %q, %v", text, err)
	}
}

func TestReplace(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir, outside string){
		"nothing there": func(*testing.T, string, string) {},
		"a file":        func(t *testing.T, dir, _ string) { write(t, filepath.Join(dir, "a"), "old") },
		"a rest of a crash": func(t *testing.T, dir, _ string) {
			write(t, filepath.Join(dir, "a"), "old")
			write(t, filepath.Join(dir, ".tmp-a"), "half of a much longer text")
		},
		"a link": func(t *testing.T, dir, outside string) {
			must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(dir, "a")))
		},
		"a link in the rest's place": func(t *testing.T, dir, outside string) {
			must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(dir, ".tmp-a")))
		},
		"a folder in the rest's place": func(t *testing.T, dir, _ string) { write(t, filepath.Join(dir, ".tmp-a", "b"), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := t.TempDir(), t.TempDir()
			write(t, filepath.Join(outside, "file"), "mine")
			prepare(t, dir, outside)
			must(t, folder.Replace(open(t, dir), "a", func(w io.Writer) error {
				_, err := io.WriteString(w, "new")
				return err
			}))
			info, err := os.Lstat(filepath.Join(dir, "a"))
			if err != nil || !info.Mode().IsRegular() || read(t, filepath.Join(dir, "a")) != "new" {
				t.Errorf("it is %v, %v", info, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("left: %v, %v", entries, err)
			}
			if text := read(t, filepath.Join(outside, "file")); text != "mine" {
				t.Errorf("outside there is %q", text)
			}
		})
	}
	t.Run("a failure", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), "old")
		failed := errors.New("failed")
		err := folder.Replace(open(t, dir), "a", func(io.Writer) error { return failed })
		if !errors.Is(err, failed) || read(t, filepath.Join(dir, "a")) != "old" {
			t.Errorf("error %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("left: %v, %v", entries, err)
		}
	})
}

func TestAside(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	write(t, filepath.Join(dir, "a"), "old")
	write(t, filepath.Join(dir, "a.superseded-2"), "")
	for _, want := range []string{"a.superseded", "a.superseded-3", "a.superseded-4"} {
		to, err := folder.CopyAside(d, "a", "superseded")
		if err != nil || to != want || read(t, filepath.Join(dir, to)) != "old" {
			t.Errorf("kept as %s, %v, want %s", to, err, want)
		}
	}
	if to, err := folder.CopyAside(d, "b", "superseded"); !errors.Is(err, fs.ErrNotExist) || to != "" {
		t.Errorf("what isn't there is kept as %q, %v", to, err)
	}
	short := faultfs.New(d)
	short.Set("a", faultfs.Fault{Short: true})
	if _, err := folder.CopyAside(short, "a", "short"); !errors.Is(err, folder.ErrUnreadable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short read: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a.short")); err == nil {
		t.Error("a part of the file is kept as if it were all")
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "1234567")
	d := faultfs.New(open(t, dir))
	if text, err := folder.ReadFile(d, "a", 7); err != nil || string(text) != "1234567" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := folder.ReadFile(d, "a", 6); !errors.Is(err, folder.ErrUnreadable) ||
		!strings.Contains(err.Error(), "has 7 bytes, but the limit is 6") {
		t.Errorf("above the limit: %v", err)
	}
	if _, err := folder.ReadFile(d, "b", 7); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, folder.ErrUnreadable) {
		t.Errorf("nothing: %v", err)
	}
	d.Set("a", faultfs.Fault{Short: true})
	if _, err := folder.ReadFile(d, "a", 7); !errors.Is(err, folder.ErrUnreadable) ||
		!strings.Contains(err.Error(), "read 6 bytes, but the system reports 7") {
		t.Errorf("a short read: %v", err)
	}
}

// A file that is replaced all the time can be read at any.
func TestOpenWhileReplaced(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	replace := func() error { // without waiting for the disk, as Replace would
		tmp := filepath.Join(dir, "tmp")
		return errors.Join(os.WriteFile(tmp, []byte("whole"), 0o644), os.Rename(tmp, filepath.Join(dir, "a")))
	}
	must(t, replace())
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				err = replace()
			}
		}
		stopped <- err
	}()
	for range 3000 {
		if text, err := folder.ReadFile(d, "a", 10); err != nil || string(text) != "whole" {
			t.Errorf("it holds %q, %v", text, err)
			break
		}
	}
	close(stop)
	must(t, <-stopped)
}

// TestErrorsNameCalls: an error names what failed as people know it, not as the system's call.
func TestErrorsNameCalls(t *testing.T) {
	d, err := folder.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	_, err = d.Open("missing/shard")
	if err == nil || strings.Contains(err.Error(), "statat") || strings.Contains(err.Error(), "openat") {
		t.Errorf("%v", err)
	}
	_, err = d.Open("shard")
	if at := new(fs.PathError); !errors.As(err, &at) || at.Op != "stat" && at.Op != "open" && at.Op != "lstat" {
		t.Errorf("%v", err)
	}
	for _, err := range []error{d.Rename("a", "b"), d.Mkdir("no/folder")} {
		if err == nil || strings.Contains(strings.Split(err.Error(), " ")[0], "at") && !strings.HasPrefix(err.Error(), "stat") {
			t.Errorf("%v", err)
		}
	}
}

// TestMissingRun: the name of a run in ./runs is suggested as its folder.
func TestMissingRun(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.MkdirAll(filepath.Join("runs", "a"), 0o755))
	for path, want := range map[string]bool{"a": true, "b": false, "c/a": false} {
		_, err := os.Stat(path)
		got := folder.Missing(err, "DIR", "folder", path).Error()
		if strings.Contains(got, "did you mean "+filepath.Join("runs", "a")+"?") != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}
