package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// TokenInfo describes a token, without its secret.
type TokenInfo struct {
	ID      string
	Role    Role
	Expires time.Time
	Revoked bool
	Uses    int64 // how many times it was redeemed
}

// tokenRecord is an authority's record of a token.
type tokenRecord struct {
	TokenInfo
	secretHash [32]byte
}

// tokenStore keeps an authority's tokens in memory, or in a folder, where other processes may change
// them too.
type tokenStore struct {
	dir string // "": in memory

	mu      sync.Mutex
	records map[string]tokenRecord
	seen    fileVersion // of the file that records were read from
}

// NewToken creates a token that expires after ttl. There are none for coordinators: the holder could
// impersonate the coordinator.
func (a *Authority) NewToken(role Role, ttl time.Duration, now time.Time) (Token, error) {
	if err := role.Check(); err != nil {
		return Token{}, err
	}
	if role == Coordinator {
		return Token{}, fmt.Errorf("%w: a token can't have the role coordinator; want worker, operator or viewer", ErrRole)
	}
	if err := a.checkTime(now); err != nil {
		return Token{}, err
	}
	expires := now.Add(ttl).Truncate(time.Second).UTC()
	if ttl < time.Second || expires.After(a.root.NotAfter) {
		return Token{}, fmt.Errorf("a token can't be valid for %v; want at least %v, and at most until the authority expires at %s", ttl,
			time.Second,
			stamp(a.root.NotAfter))
	}
	t := Token{Authority: a.Hash(), Role: role, Expires: expires}
	var id [idBytes]byte
	for _, random := range [][]byte{id[:], t.Secret[:]} {
		_, _ = rand.Read(random) // its documentation says that it never fails
	}
	t.ID = hex.EncodeToString(id[:])
	used, err := a.usedTokens()
	if err != nil {
		return Token{}, fmt.Errorf("create a token: %w", err)
	}
	err = a.tokens.update(func(records map[string]tokenRecord) error {
		drop(records, now.Add(-expiredKept), used)
		if len(records) >= tokensMax {
			drop(records, now, used)
		}
		if len(records) >= tokensMax {
			return fmt.Errorf("%d tokens have not expired; the limit is %d; wait until some expire, and give new tokens a shorter validity",
				len(records), tokensMax)
		}
		records[t.ID] = tokenRecord{
			TokenInfo:  TokenInfo{ID: t.ID, Role: role, Expires: expires},
			secretHash: sha256.Sum256(t.Secret[:]),
		}
		return nil
	})
	if err != nil {
		return Token{}, fmt.Errorf("create a token: %w", err)
	}
	return t, nil
}

// drop removes the tokens that expired before a time, except those with valid certificates, which can still be revoked.
func drop(records map[string]tokenRecord, before time.Time, used map[string]bool) {
	maps.DeleteFunc(records, func(id string, r tokenRecord) bool { return r.Expires.Before(before) && !used[id] })
}

// usedTokens returns the tokens with valid certificates.
func (a *Authority) usedTokens() (map[string]bool, error) {
	used := make(map[string]bool)
	err := a.issued.read(func(l *ledger) error {
		for id := range l.tokens {
			used[id] = true
		}
		return nil
	})
	return used, err
}

// Redeem checks a token's secret and returns its role. An error that is ErrTokenRefused says more than
// the peer may know: send the peer only ErrTokenRefused itself.
func (a *Authority) Redeem(id string, secret []byte, now time.Time) (Role, error) {
	s := a.tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.checkLocked(id, secret, now)
	if err != nil {
		return "", err
	}
	// The count is for human readers. A full disk must not keep a worker out; the count then stays in
	// memory until the next change.
	count := func(records map[string]tokenRecord) error {
		if r, known := records[id]; known {
			r.Uses++
			records[id] = r
		}
		return nil
	}
	if err := s.updateLocked(count); err != nil {
		_ = count(s.records)
	}
	return r.Role, nil
}

// checkLocked returns the record of a token with that secret that is valid at a time. mu is held.
func (s *tokenStore) checkLocked(id string, secret []byte, at time.Time) (tokenRecord, error) {
	if err := s.refresh(); err != nil {
		return tokenRecord{}, err
	}
	// An unknown id takes the same path: it is compared with a hash that no secret has.
	r, known := s.records[id]
	got := sha256.Sum256(secret)
	same := subtle.ConstantTimeCompare(got[:], r.secretHash[:]) == 1
	switch {
	case !known || !same:
		return r, ErrTokenUnknown
	case r.Revoked:
		return r, ErrTokenRevoked
	case at.After(r.Expires):
		return r, fmt.Errorf("%w: at %s; this host's clock says %s", ErrTokenExpired, stamp(r.Expires), stamp(at))
	}
	return r, nil
}

// Accepted reports whether Redeem would accept a token at a time. It does not count as a use.
func (a *Authority) Accepted(t Token, at time.Time) bool {
	s := a.tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.checkLocked(t.ID, t.Secret[:], at)
	return err == nil && t.Authority == a.Hash()
}

// Revoke revokes a token. Certificates from it are no longer accepted or renewed. The token stays known while such
// certificates have not expired.
func (a *Authority) Revoke(id string) error {
	let := false
	err := a.issued.update(func(l *ledger) error {
		t, known := l.tokens[id]
		if let = known; known {
			t.revoked = true
			l.tokens[id] = t
		}
		return nil
	})
	if err == nil || errors.Is(err, errNotKept) {
		err = errors.Join(err, a.tokens.update(func(records map[string]tokenRecord) error {
			r, known := records[id]
			switch {
			case known:
				r.Revoked = true
				records[id] = r
			case !let:
				return ErrTokenUnknown
			}
			return nil
		}))
	}
	if err != nil {
		return fmt.Errorf("revoke the token %q: %w", id[:min(len(id), 2*idBytes)], err)
	}
	return nil
}

// Tokens lists the tokens, the first to expire first.
func (a *Authority) Tokens() []TokenInfo {
	s := a.tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.refresh() // if it fails, the last known tokens are listed
	list := make([]TokenInfo, 0, len(s.records))
	for _, r := range s.sorted() {
		list = append(list, r.TokenInfo)
	}
	return list
}

func (s *tokenStore) sorted() []tokenRecord {
	return slices.SortedFunc(maps.Values(s.records), func(a, b tokenRecord) int {
		if c := a.Expires.Compare(b.Expires); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
}

func (s *tokenStore) update(change func(map[string]tokenRecord) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updateLocked(change)
}

// updateLocked makes a change and writes it; if it can't be written, the change is undone.
func (s *tokenStore) updateLocked(change func(map[string]tokenRecord) error) (err error) {
	if s.dir != "" {
		unlock, err := lockDir(s.dir)
		if err != nil {
			return err
		}
		defer unlock()
		if err := s.refresh(); err != nil {
			return err
		}
	}
	next := maps.Clone(s.records)
	if next == nil {
		next = make(map[string]tokenRecord)
	}
	if err := change(next); err != nil {
		return err
	}
	before := s.records
	s.records = next
	if s.dir == "" {
		return nil
	}
	if err := s.write(); err != nil {
		s.records = before
		return err
	}
	return nil
}

// refresh reads the file again if another process has changed it.
func (s *tokenStore) refresh() error {
	if s.dir == "" {
		return nil
	}
	path := tokensPath(s.dir)
	version, err := versionOf(path)
	if err != nil {
		return err
	}
	if version.same(s.seen) {
		return nil
	}
	records := make(map[string]tokenRecord)
	if version.exists() {
		content, err := readPrivate(path, tokensFileBytesMax, ours)
		if err != nil {
			return err
		}
		if records, err = decodeTokens(content); err != nil {
			return fmt.Errorf("%s is %w: %w; restore it, or move it away and create new tokens (the old ones no longer count)", path,
				ErrDamaged, err)
		}
	}
	s.records, s.seen = records, version
	return nil
}

func (s *tokenStore) write() error {
	content, err := encodeTokens(s.sorted())
	if err != nil {
		return err
	}
	if len(content) > tokensFileBytesMax {
		return fmt.Errorf("%s would have %d bytes; the limit is %d", tokensPath(s.dir), len(content), tokensFileBytesMax)
	}
	if err := replacePrivate(tokensPath(s.dir), content, keepOwner); err != nil {
		return err
	}
	version, err := versionOf(tokensPath(s.dir))
	if err != nil || !version.exists() {
		return errors.Join(err, fmt.Errorf("%s was removed right after it was written", tokensPath(s.dir)))
	}
	s.seen = version
	return nil
}
