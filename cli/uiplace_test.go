package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestPagePlace: the port and the token of a folder's page stay, those of another folder or user differ, and a secret that others
// can read is refused.
func TestPagePlace(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	place := func(dir string) pagePlace {
		p, err := placeOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := place("runs/one")
	if again := place("./runs/../runs/one"); again != one {
		t.Errorf("another start: %v, not %v", again, one)
	}
	if two := place("runs/two"); two.token == one.token {
		t.Errorf("two folders have one token: %v", two)
	}
	key := filepath.Join(state, "troupe-page", "key")
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret: %v %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(key)); err != nil || len(left) != 1 {
		t.Errorf("files that stay: %v %v", left, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := placeOf("runs/one"); err == nil {
		t.Error("a secret that others can read was taken")
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if other := place("runs/one"); other.token == one.token {
		t.Error("two users have one token")
	}
}
