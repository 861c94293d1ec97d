//go:build linux || darwin || freebsd

package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestRights: only a token file may be readable through the process's group, as files from the system are.
func TestRights(t *testing.T) {
	const root, me, somebody = 0, 1000, 1001
	for _, tt := range []struct {
		mode      fs.FileMode
		uid, self int
		token     bool // good for a token
		key       bool // good for a key
	}{
		{0o600, me, me, true, true},
		{0o400, me, me, true, true},
		{0o440, me, me, false, false},
		{0o440, root, me, true, false}, // a secret of Kubernetes with fsGroup, a credential of systemd
		{0o444, root, me, false, false},
		{0o460, root, me, false, false},
		{0o600, root, root, true, true},
		{0o640, root, root, false, false},
		{0o600, somebody, root, true, true},
		{0o644, somebody, root, false, false},
		{0o600, somebody, me, false, false},
		{0o400, root, me, true, false},
	} {
		for owner, want := range map[ownership]bool{ofOthers: tt.token, ours: tt.key} {
			if err := checkRights("f", tt.mode, tt.uid, tt.self, owner); (err == nil) != want || err != nil && !errors.Is(err, ErrExposed) {
				t.Errorf("%04o of %d for %d (%d): %v", tt.mode, tt.uid, tt.self, owner, err)
			}
		}
	}
}

// TestLockHeld: a lock that another process never releases is an error that names the file.
func TestLockHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "authority")
	synctest.Test(t, func(t *testing.T) {
		a, err := OpenAuthority(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(dir, lockFile))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if _, err := a.NewToken(Worker, time.Hour, time.Now()); err == nil || !strings.Contains(err.Error(), f.Name()) {
			t.Error(err)
		}
	})
}

// TestTokensOwner: if root creates tokens for a coordinator that runs as another user, the file keeps that owner.
func TestTokensOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make files somebody else's")
	}
	const somebody = 65534
	dir := t.TempDir()
	a, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.NewToken(Worker, time.Hour, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(tokensPath(dir), somebody, somebody); err != nil {
		t.Fatal(err)
	}
	if _, err := a.NewToken(Worker, time.Hour, time.Now()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(tokensPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(info); uid != somebody {
		t.Errorf("%s belongs to user %d now; want %d", tokensPath(dir), uid, somebody)
	}
	// A token's file is the one's who asked for it, whoever has put another there.
	out := filepath.Join(t.TempDir(), "worker.token")
	if err := errors.Join(os.WriteFile(out, nil, 0o600), os.Lchown(out, somebody, somebody)); err != nil {
		t.Fatal(err)
	}
	token, err := a.NewToken(Worker, time.Hour, time.Now())
	if err == nil {
		err = WriteTokenFile(out, token)
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(out); err != nil || ownerOf(info) != 0 {
		t.Errorf("%s belongs to user %d; want root (%v)", out, ownerOf(info), err)
	}
}
