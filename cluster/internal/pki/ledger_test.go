package pki

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNotKept: if the files can't be written, a worker can still join, but a release or a revocation is an error, because other
// processes would not see it.
func TestNotKept(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a, err := OpenAuthority(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	token, err := a.NewToken(Worker, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	join := func(name string) error {
		_, csr, err := NewRequest(Identity{Name: name, Role: Worker})
		if err == nil {
			_, _, err = a.Join(Joining{TokenID: token.ID, Secret: token.Secret[:], CSR: csr, Name: name}, now)
		}
		return err
	}
	if err := join("one"); err != nil {
		t.Fatal(err)
	}
	// What is in the way of the file that replaces the other one can't be removed.
	if err := os.MkdirAll(filepath.Join(dir, ".tmp-"+issuedFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := join("two"); err != nil {
		t.Errorf("a worker: %v", err)
	}
	if err := a.Release("one"); !errors.Is(err, errNotKept) {
		t.Errorf("a release: %v", err)
	}
	if err := a.Revoke(token.ID); !errors.Is(err, errNotKept) {
		t.Errorf("a revocation: %v", err)
	}
	if again, err := OpenAuthority(dir, now); err != nil || len(again.Names()) != 1 {
		t.Errorf("another process knows %v, %v", again.Names(), err)
	}
	if err := join("three"); !errors.Is(err, ErrTokenRevoked) {
		t.Errorf("the token is revoked here: %v", err)
	}
}

// TestRenewalMeanwhile: a name that is released during the renewal of its certificate stays free.
func TestRenewalMeanwhile(t *testing.T) {
	now := time.Now()
	l := newLedger()
	const token = "0123456789abcdef"
	id, key := Identity{Name: "w", Role: Worker}, [32]byte{1}
	if err := l.join(Joining{TokenID: token, Name: "w"}, Worker, key, now); err != nil {
		t.Fatal(err)
	}
	delete(l.names, "w")
	if err := l.renew(id, token, key, [32]byte{2}, now); !errors.Is(err, ErrNameHeld) || len(l.names) > 0 {
		t.Errorf("names %v, %v", l.names, err)
	}
	if _, err := decodeLedger(encodeLedger(l)); err != nil {
		t.Error(err)
	}
	l.tokens[token] = issuedToken{id: token, role: Worker, revoked: true, until: now.Add(time.Hour)}
	if err := l.renew(id, token, key, [32]byte{2}, now); !errors.Is(err, ErrTokenRevoked) {
		t.Errorf("a token that is revoked: %v", err)
	}
}
