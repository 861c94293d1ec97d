package rundir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/faultfs"
)

// open opens a folder and closes it again.
func open(t *testing.T, out string, fresh bool) (*rundir.Dir, error) {
	t.Helper()
	d, err := rundir.Open(newConfig(t, out), fresh)
	if err == nil {
		must(t, d.Close())
	}
	return d, err
}

// TestOpenRefuses: a folder that holds something else than a run is not even locked.
func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string // "/" at the end of a name: a folder, "→ " before a content: a link
		fresh bool
		want  string
	}{
		{"someone's file", map[string]string{"thesis.txt": "x"}, false, "has thesis.txt but no config.toml, so it is not the folder of a run"},
		{"someone's folder", map[string]string{"photos/": ""}, false, "has photos but no config.toml"},
		{"checkpoints alone", map[string]string{".lock": "", "checkpoints/": ""}, false, "has checkpoints but no config.toml"},
		{"another program's config.toml", map[string]string{"config.toml": "title = 'my site'"}, false,
			"config.toml but no .lock, so it is not the folder of a run"},
		{"a config.toml to start from", map[string]string{"config.toml": smallRun}, false, "no .lock"},
		{"a fresh start among someone's files", map[string]string{"b": "", "a": "", "c": "", "d": ""}, true,
			"is not empty (a, b, c), but --fresh requires an empty folder"},
		{"a fresh start on a run", map[string]string{".lock": "", "config.toml": smallRun}, true, "is not empty (config.toml)"},
		{"a folder in the lock's place", map[string]string{".lock/": ""}, false, ".lock is not a file; remove it"},
		{"a link in the lock's place", map[string]string{".lock": "→ elsewhere"}, false,
			".lock is a symbolic link, which is not allowed; put the file itself there"},
		{"a folder in the configuration's place", map[string]string{".lock": "", "config.toml/": ""}, false, "config.toml is not a file"},
		{"a link in the configuration's place", map[string]string{".lock": "", "config.toml": "→ elsewhere"}, false,
			"config.toml is a symbolic link"},
		{"a folder in the metrics' place", map[string]string{".lock": "", "config.toml": smallRun, "metrics.jsonl/": ""}, false,
			"metrics.jsonl is not a file"},
		{"a link in the metrics' place", map[string]string{".lock": "", "config.toml": smallRun, "metrics.jsonl": "→ elsewhere"}, false,
			"metrics.jsonl is a symbolic link"},
		{"a folder in the trace's place", map[string]string{".lock": "", "config.toml": smallRun, "trace.jsonl/": ""}, false,
			"trace.jsonl is not a file"},
		{"a link in the trace's place", map[string]string{".lock": "", "config.toml": smallRun, "trace.jsonl": "→ elsewhere"}, false,
			"trace.jsonl is a symbolic link"},
		{"a file in the checkpoints' place", map[string]string{".lock": "", "config.toml": smallRun, "checkpoints": ""}, false,
			"checkpoints is not a folder"},
		{"a link in the checkpoints' place", map[string]string{".lock": "", "config.toml": smallRun, "checkpoints": "→ elsewhere"}, false,
			"checkpoints is a symbolic link, which is not allowed; put the folder itself there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(memoryDir(t), "out")
			must(t, os.Mkdir(out, 0o755))
			for name, content := range tt.files {
				path := filepath.Join(out, name)
				if target, ok := strings.CutPrefix(content, "→ "); ok {
					must(t, os.Symlink(target, path))
				} else if strings.HasSuffix(name, "/") {
					must(t, os.Mkdir(path, 0o755))
				} else {
					write(t, path, content)
				}
			}
			before := tree(t, out)
			_, err := open(t, out, tt.fresh)
			if !errors.Is(err, rundir.ErrFolder) || !strings.HasPrefix(err.Error(), "--set run.out="+out+": run.out: ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want ErrFolder at run.out with %q", err, tt.want)
			}
			same(t, before, tree(t, out))
		})
	}
}

// TestOpenRefusesAFile in the folder's place.
func TestOpenRefusesAFile(t *testing.T) {
	out := filepath.Join(memoryDir(t), "out")
	write(t, out, "x")
	if _, err := open(t, out, false); !errors.Is(err, rundir.ErrFolder) || !strings.Contains(err.Error(), out+" is not a folder") {
		t.Errorf("error %v", err)
	}
	if read(t, out) != "x" {
		t.Error("the file is changed")
	}
}

// TestOpenAccepts: a folder that is new, or holds nothing but what a start cut short has
// left, is anybody's, also for a fresh start.
func TestOpenAccepts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
	}{
		{"none", nil},
		{"an empty one", []string{}},
		{"one that was locked", []string{".lock"}},
		{"what a crash left", []string{".lock", ".tmp-config.toml", ".tmp-metrics.jsonl"}},
	} {
		for _, fresh := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				out := filepath.Join(memoryDir(t), "runs", "out")
				if tt.files != nil {
					must(t, os.MkdirAll(out, 0o755))
				}
				for _, name := range tt.files {
					write(t, filepath.Join(out, name), "")
				}
				d, err := open(t, out, fresh)
				must(t, err)
				if d.Config != nil || d.Begun || len(d.Warnings) > 0 {
					t.Errorf("%+v", d)
				}
				if tt.files == nil { // a start that fails leaves no folder
					if _, err := os.Stat(filepath.Dir(out)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("the folder of the runs is left: %v", err)
					}
					return
				}
				want := slices.Compact(append([]string{".lock"}, tt.files...))
				if left := list(t, out); !slices.Equal(left, want) {
					t.Errorf("the folder has %v, want %v", left, want)
				}
			})
		}
	}
}

// TestOpenKnowsTheRun: its configuration is the stored one, byte for byte; where the
// folder lies is its user's own choice.
func TestOpenKnowsTheRun(t *testing.T) {
	out, link := trained(t), filepath.Join(memoryDir(t), "link")
	must(t, os.Symlink(out, link))
	for _, path := range []string{out, link} {
		d, err := open(t, path, false)
		must(t, err)
		if string(d.Config) != read(t, filepath.Join(out, "config.toml")) {
			t.Errorf("%s: the configuration is %q", path, d.Config)
		}
	}
	goesOn(t, newConfig(t, link), 0, 6)
}

// TestOpenIsAlone: a second one is refused as long as the first is open.
func TestOpenIsAlone(t *testing.T) {
	out := trained(t)
	d, err := rundir.Open(newConfig(t, out), false)
	must(t, err)
	before := tree(t, out)
	if _, err := open(t, out, false); !errors.Is(err, checkpoint.ErrLocked) || !checkpoint.TryAgain(err) {
		t.Errorf("error %v", err)
	}
	same(t, before, tree(t, out))
	must(t, d.Close())
	if _, err := open(t, out, false); err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
}

// changing does something to a folder after it was listed for the first time.
type changing struct {
	checkpoint.FS
	change func()
}

func (c *changing) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := c.FS.ReadDir(name)
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return entries, err
}

// TestOpenLooksAgain: what appears between the look at a folder and its lock is refused
// too, and the lock given back.
func TestOpenLooksAgain(t *testing.T) {
	out := memoryDir(t)
	file := filepath.Join(out, "thesis.txt")
	change := func() { write(t, file, "x") }
	through(t, func(under checkpoint.FS) checkpoint.FS {
		c := &changing{FS: under, change: change}
		change = nil
		return c
	})
	if _, err := open(t, out, false); !errors.Is(err, rundir.ErrFolder) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("error %v", err)
	}
	must(t, os.Remove(file))
	if _, err := open(t, out, false); err != nil {
		t.Errorf("the lock is not given back: %v", err)
	}
}

// TestOpenUnreadable: what can't be read now is not taken for something else.
func TestOpenUnreadable(t *testing.T) {
	out := trained(t)
	for _, tt := range []struct {
		name  string
		fault faultfs.Fault
		again bool
	}{
		{".", faultfs.Fault{Open: syscall.EACCES}, false},
		{".", faultfs.Fault{Open: syscall.EMFILE}, true},
		{"checkpoints", faultfs.Fault{Open: syscall.EACCES}, false},
		{"config.toml", faultfs.Fault{Open: syscall.EACCES}, false},
		{"config.toml", faultfs.Fault{Read: syscall.EIO}, true},
		{"config.toml", faultfs.Fault{Short: true}, true},
	} {
		through(t, func(under checkpoint.FS) checkpoint.FS {
			f := faultfs.New(under)
			f.Set(tt.name, tt.fault)
			return f
		})
		before := tree(t, out)
		if _, err := open(t, out, false); !errors.Is(err, checkpoint.ErrUnreadable) || checkpoint.TryAgain(err) != tt.again ||
			!strings.Contains(err.Error(), filepath.Join(out, tt.name)) {
			t.Errorf("%s, %+v: error %v", tt.name, tt.fault, err)
		}
		same(t, before, tree(t, out))
	}
	through(t, func(under checkpoint.FS) checkpoint.FS { return under })
	if _, err := open(t, out, false); err != nil {
		t.Errorf("the lock is not given back: %v", err)
	}
}
