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

// TokenInfo is what an authority tells of a token.
type TokenInfo struct {
	ID      string
	Role    Role
	Expires time.Time
	Revoked bool
	Uses    int64 // how often it was redeemed
}

// tokenRecord is what an authority keeps of a token.
type tokenRecord struct {
	TokenInfo
	secretHash [32]byte
}

// tokenStore is the tokens of an authority. With a folder they are there, and other processes
// may change them too.
type tokenStore struct {
	dir string // "" keeps them in memory

	mu      sync.Mutex
	records map[string]tokenRecord
	seen    fileVersion // of the file that records were read from
}

// NewToken makes a token. There is none for a coordinator: its holder could pose as one to
// all others.
func (a *Authority) NewToken(role Role, ttl time.Duration, now time.Time) (Token, error) {
	if err := role.Check(); err != nil {
		return Token{}, err
	}
	if role == Coordinator {
		return Token{}, fmt.Errorf("%w: a token for a coordinator; want worker, operator or viewer", ErrRole)
	}
	if err := a.checkTime(now); err != nil {
		return Token{}, err
	}
	expires := now.Add(ttl).Truncate(time.Second).UTC()
	if ttl < time.Second || expires.After(a.root.NotAfter) {
		return Token{}, fmt.Errorf("a token with a life of %v; want from %v up to the end of the authority, %s", ttl, time.Second,
			stamp(a.root.NotAfter))
	}
	t := Token{Authority: a.Hash(), Role: role, Expires: expires}
	var id [idBytes]byte
	for _, random := range [][]byte{id[:], t.Secret[:]} {
		_, _ = rand.Read(random) // never fails, as its documentation says
	}
	t.ID = hex.EncodeToString(id[:])
	used, err := a.usedTokens()
	if err != nil {
		return Token{}, fmt.Errorf("making a token: %w", err)
	}
	err = a.tokens.update(func(records map[string]tokenRecord) error {
		drop(records, now.Add(-expiredKept), used)
		if len(records) >= tokensMax {
			drop(records, now, used)
		}
		if len(records) >= tokensMax {
			return fmt.Errorf("there are %d tokens that have not expired, the most is %d: give new ones a shorter life", len(records), tokensMax)
		}
		records[t.ID] = tokenRecord{
			TokenInfo:  TokenInfo{ID: t.ID, Role: role, Expires: expires},
			secretHash: sha256.Sum256(t.Secret[:]),
		}
		return nil
	})
	if err != nil {
		return Token{}, fmt.Errorf("making a token: %w", err)
	}
	return t, nil
}

// drop forgets the tokens that expired before a time, but for those by which there are certificates: they can still be revoked.
func drop(records map[string]tokenRecord, before time.Time, used map[string]bool) {
	maps.DeleteFunc(records, func(id string, r tokenRecord) bool { return r.Expires.Before(before) && !used[id] })
}

// usedTokens are those by which there are certificates.
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

// Redeem gives the role of a token whose secret this is. An error that is ErrTokenRefused says
// more than the peer may know: send it ErrTokenRefused alone.
func (a *Authority) Redeem(id string, secret []byte, now time.Time) (Role, error) {
	s := a.tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return "", err
	}
	// An unknown id takes the same way: it is compared with a hash that nothing has.
	r, known := s.records[id]
	got := sha256.Sum256(secret)
	same := subtle.ConstantTimeCompare(got[:], r.secretHash[:]) == 1
	switch {
	case !known || !same:
		return "", ErrTokenUnknown
	case r.Revoked:
		return "", ErrTokenRevoked
	case now.After(r.Expires):
		return "", fmt.Errorf("%w: at %s, and it is %s here", ErrTokenExpired, stamp(r.Expires), stamp(now))
	}
	// The count is for people. A full disk must not keep a worker out: then it stands in
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

// Revoke ends a token, and what it has let in: certificates by it are accepted and renewed no more. It is known for as long
// as there are any.
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
		return fmt.Errorf("revoking the token %q: %w", id[:min(len(id), 2*idBytes)], err)
	}
	return nil
}

// Tokens lists the tokens, the first to expire first.
func (a *Authority) Tokens() []TokenInfo {
	s := a.tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.refresh() // what was known before is better than nothing
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

// updateLocked makes a change and keeps it, or neither.
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
			return fmt.Errorf("%s is %w: %w; restore it, or move it away: then no token counts any more and new ones have to be made", path,
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
		return fmt.Errorf("%s would have %d bytes; the most is %d", tokensPath(s.dir), len(content), tokensFileBytesMax)
	}
	if err := replacePrivate(tokensPath(s.dir), content, keepOwner); err != nil {
		return err
	}
	version, err := versionOf(tokensPath(s.dir))
	if err != nil || !version.exists() {
		return errors.Join(err, fmt.Errorf("%s is gone as soon as written", tokensPath(s.dir)))
	}
	s.seen = version
	return nil
}
