package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/wire"
)

func openFolder(t *testing.T, path string) *folder.Folder {
	t.Helper()
	d, err := folder.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestProbe: a worker sees the run's folder only if it can read the coordinator's probe there, and the coordinator can read
// the worker's answer.
func TestProbe(t *testing.T) {
	self := uuid.UUID{1, 2, 3}
	for name, c := range map[string]struct {
		// prepare changes what the worker sees; it returns the folder that the worker's path
		// leads to.
		prepare func(t *testing.T, dir string, p *folderProbe) string
		blind   string // what the worker says
		denied  string // what the coordinator finds
	}{
		"the same": {func(_ *testing.T, dir string, _ *folderProbe) string { return dir }, "", ""},
		"through a link": {func(t *testing.T, dir string, _ *folderProbe) string {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return link
		}, "", ""},
		"another disk": {func(t *testing.T, _ string, _ *folderProbe) string { return t.TempDir() }, "no such file", ""},
		"nothing":      {func(t *testing.T, _ string, _ *folderProbe) string { return filepath.Join(t.TempDir(), "none") }, "no such file", ""},
		"a copy": {func(t *testing.T, dir string, _ *folderProbe) string {
			other := t.TempDir()
			if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			return other
		}, "", "no such file"},
		"another's probe": {func(t *testing.T, _ string, p *folderProbe) string {
			other := t.TempDir()
			if err := os.WriteFile(filepath.Join(other, p.name), []byte("sixteen bytes, !"), 0o600); err != nil {
				t.Fatal(err)
			}
			return other
		}, "is not the file that the coordinator wrote", ""},
		"it can't write there": {func(t *testing.T, dir string, p *folderProbe) string {
			if err := os.Mkdir(filepath.Join(dir, answerName(p.name, self)), 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "exists", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := newFolderProbe(openFolder(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			var m wire.Assign
			p.assign(&m)
			if m.GetFolder() != dir {
				t.Errorf("workers look at %s", m.GetFolder())
			}
			m.Folder = c.prepare(t, dir, p)
			at, answer, err := answerProbe(&m, self)
			if at != nil {
				defer at.Close() //nolint:errcheck // nothing was written
			}
			switch {
			case c.blind != "":
				if err == nil || at != nil || !strings.Contains(err.Error(), c.blind) {
					t.Errorf("the worker says %v, want %q", err, c.blind)
				}
			case err != nil || at == nil:
				t.Errorf("the worker says %v", err)
			default:
				if err = p.check(self, answer); c.denied == "" && err != nil || c.denied != "" &&
					(err == nil || !strings.Contains(err.Error(), c.denied)) {
					t.Errorf("the coordinator finds %v, want %q", err, c.denied)
				}
				answer[0]++
				if p.check(self, answer) == nil || p.check(uuid.UUID{2}, answer) == nil || p.check(self, nil) == nil {
					t.Error("a wrong answer is taken")
				}
			}
			if err := p.remove([]uuid.UUID{self, {4, 5, 6}}); err != nil {
				t.Error(err)
			}
			if left := list(t, dir); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestProbeNames: a worker creates only files with a probe's form of name.
func TestProbeNames(t *testing.T) {
	dir := t.TempDir()
	p, err := newFolderProbe(openFolder(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	before := list(t, dir)
	for name, change := range map[string]func(m *wire.Assign){
		"no name":         func(m *wire.Assign) { m.Probe = "" },
		"a path":          func(m *wire.Assign) { m.Probe = "../" + filepath.Base(dir) + "/" + p.name },
		"a separator":     func(m *wire.Assign) { m.Probe = p.name[:len(p.name)-2] + "/a" },
		"another name":    func(m *wire.Assign) { m.Probe = "config.toml" },
		"a longer name":   func(m *wire.Assign) { m.Probe += "00" },
		"no content":      func(m *wire.Assign) { m.ProbeContent = nil },
		"a long content":  func(m *wire.Assign) { m.ProbeContent = make([]byte, 1<<20) },
		"a relative path": func(m *wire.Assign) { m.Folder = "." },
	} {
		t.Run(name, func(t *testing.T) {
			var m wire.Assign
			p.assign(&m)
			change(&m)
			if at, _, err := answerProbe(&m, uuid.UUID{1}); err == nil {
				t.Error("it is answered")
				_ = at.Close()
			}
			if after := list(t, dir); len(after) != len(before) {
				t.Errorf("there is %q", after)
			}
		})
	}
}
