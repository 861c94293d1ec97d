//go:build linux || darwin || freebsd

package folder_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Opening a named pipe would wait for somebody at its other end.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	d := open(t, dir)
	for name, do := range map[string]func() error{
		"open":   func() error { return closed(d.Open("pipe")) },
		"append": func() error { return closed(d.Append("pipe")) },
		"sub":    func() error { _, err := d.Sub("pipe"); return err },
		"itself": func() error { _, err := folder.Open(filepath.Join(dir, "pipe")); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "pipe is not a ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
