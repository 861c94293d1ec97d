package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBusy: the error of an address in use names the flag, and wraps the system's error; other errors stay.
func TestBusy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at := l.Addr().String()
	_, used := net.Listen("tcp", at)
	for flag, got := range map[string]error{"--ui": busy(used, "--ui"), "--listen": busyNode(used, "127.0.0.1:1"),
		"--data-address": busyNode(used, at)} {
		if want := at + " is in use by another process; choose another address with " + flag; got.Error() != want || !errors.Is(got, used) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := busy(fs.ErrExist, "--ui"); !errors.Is(got, fs.ErrExist) || got.Error() != fs.ErrExist.Error() || busyNode(nil, "") != nil {
		t.Errorf("another error became %v", got)
	}
}

// TestMissingConfig: a mistyped name suggests the config beside it.
func TestMissingConfig(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "first.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "frist.toml")
	got := missingConfig(fs.ErrNotExist, path)
	if !errors.Is(got, fs.ErrNotExist) || !strings.Contains(got.Error(), "frist.toml\" does not exist") ||
		!strings.HasSuffix(got.Error(), ", did you mean "+filepath.Join(dir, "first.toml")+"?") {
		t.Errorf("got %q", got)
	}
	if got := missingConfig(fs.ErrPermission, path); got.Error() != fs.ErrPermission.Error() {
		t.Errorf("another error became %q", got)
	}
}
