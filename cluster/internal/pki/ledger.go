package pki

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger records what an authority has issued: the holders of workers' names, and the tokens with valid certificates.
type ledger struct {
	names   map[string]nameRecord
	tokens  map[string]issuedToken
	changes uint64
}

func newLedger() *ledger {
	return &ledger{names: make(map[string]nameRecord), tokens: make(map[string]issuedToken)}
}

// ledgerStore keeps a ledger in memory, or in a folder, where other processes may change it too.
type ledgerStore struct {
	dir string // "": in memory

	mu   sync.Mutex
	now  *ledger
	seen fileVersion // of the file that it was read from
}

const issuedFile = "issued.json"

func issuedPath(dir string) string { return filepath.Join(dir, issuedFile) }

// read calls f with the current ledger.
func (s *ledgerStore) read(f func(*ledger) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return err
	}
	return f(s.now)
}

// errNotKept: a change is only in memory, until the next change that can be written.
var errNotKept = errors.New("the change counts only for this process until the file can be written")

// update makes a change and writes it. If it can't be written, it still counts in memory, and the error is errNotKept.
func (s *ledgerStore) update(change func(*ledger) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		unlock, err := lockDir(s.dir)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if err := s.refresh(); err != nil {
		return err
	}
	next := &ledger{maps.Clone(s.now.names), maps.Clone(s.now.tokens), s.now.changes + 1}
	if err := change(next); err != nil {
		return err
	}
	s.now = next
	if s.dir == "" {
		return nil
	}
	if err := replacePrivate(issuedPath(s.dir), encodeLedger(next), keepOwner); err != nil {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	version, err := versionOf(issuedPath(s.dir))
	s.seen = version
	return err
}

// letIn is update for a process that joins or renews: a full disk must not keep it out.
func (s *ledgerStore) letIn(change func(*ledger) error) error {
	err := s.update(change)
	if errors.Is(err, errNotKept) {
		return nil
	}
	return err
}

// refresh reads the file again if another process has changed it.
func (s *ledgerStore) refresh() error {
	if s.now == nil {
		s.now = newLedger()
	}
	if s.dir == "" {
		return nil
	}
	path := issuedPath(s.dir)
	version, err := versionOf(path)
	if err != nil || version.same(s.seen) {
		return err
	}
	next := newLedger()
	if version.exists() {
		content, err := readPrivate(path, issuedFileBytesMax, ours)
		if err != nil {
			return err
		}
		if next, err = decodeLedger(content); err != nil {
			return fmt.Errorf("%s is %w: %w; restore it, or move it away and let all processes join again", path, ErrDamaged, err)
		}
	}
	next.changes = s.now.changes + 1
	s.now, s.seen = next, version
	return nil
}

// issuedVersion is the version of issued.json that this package reads and writes.
const issuedVersion = 1

type issuedJSON struct {
	Version int               `json:"version"`
	Tokens  []issuedTokenJSON `json:"tokens"`
	Names   []nameJSON        `json:"names"`
}

type issuedTokenJSON struct {
	ID      string `json:"id"`
	Role    Role   `json:"role"`
	Revoked *bool  `json:"revoked"`
	Until   string `json:"until"`
}

type nameJSON struct {
	Name  string   `json:"name"`
	Token string   `json:"token"`
	Kept  *bool    `json:"kept"`
	Keys  []string `json:"keys"` // SHA-256 of public keys
	Until string   `json:"until"`
}

func encodeLedger(l *ledger) []byte {
	file := issuedJSON{Version: issuedVersion, Tokens: []issuedTokenJSON{}, Names: []nameJSON{}}
	for _, t := range slices.SortedFunc(maps.Values(l.tokens), func(a, b issuedToken) int { return strings.Compare(a.id, b.id) }) {
		file.Tokens = append(file.Tokens, issuedTokenJSON{t.id, t.role, &t.revoked, stamp(t.until)})
	}
	for _, r := range slices.SortedFunc(maps.Values(l.names), func(a, b nameRecord) int { return strings.Compare(a.Name, b.Name) }) {
		n := nameJSON{r.Name, r.Token, &r.kept, nil, stamp(r.Until)}
		for _, k := range r.keys {
			n.Keys = append(n.Keys, hex.EncodeToString(k[:]))
		}
		file.Names = append(file.Names, n)
	}
	content, _ := json.MarshalIndent(file, "", "  ") // never fails for these types
	return append(content, '\n')
}

// decodeLedger parses issued.json. It refuses unknown and missing keys, so that a misspelled revocation is not ignored.
func decodeLedger(content []byte) (*ledger, error) {
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	var file issuedJSON
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has data after its end")
	}
	if file.Version != issuedVersion || file.Tokens == nil || file.Names == nil {
		return nil, fmt.Errorf("the version is %d; want %d, tokens and names", file.Version, issuedVersion)
	}
	if len(file.Tokens) > tokensMax || len(file.Names) > namesMax {
		return nil, fmt.Errorf("it has %d tokens and %d names; the limits are %d and %d", len(file.Tokens), len(file.Names), tokensMax, namesMax)
	}
	l := newLedger()
	for i, t := range file.Tokens {
		until, err := time.Parse(time.RFC3339, t.Until)
		var id [idBytes]byte
		if err == nil {
			err = errors.Join(decodeHex(id[:], t.ID), t.Role.Check())
		}
		if _, twice := l.tokens[t.ID]; err == nil && (twice || t.Revoked == nil) {
			err = errors.New("it appears twice, or does not say whether it is revoked")
		}
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		l.tokens[t.ID] = issuedToken{t.ID, t.Role, *t.Revoked, until.UTC()}
	}
	for i, n := range file.Names {
		r, err := decodeName(n)
		if _, twice := l.names[n.Name]; err == nil && twice {
			err = errors.New("it appears twice")
		}
		if err != nil {
			return nil, fmt.Errorf("name %d: %w", i+1, err)
		}
		l.names[n.Name] = r
	}
	return l, nil
}

func decodeName(n nameJSON) (r nameRecord, err error) {
	until, err := time.Parse(time.RFC3339, n.Until)
	if err == nil {
		err = Identity{n.Name, Worker}.Check()
	}
	if err == nil && (n.Kept == nil || len(n.Keys) == 0 || len(n.Keys) > 2) {
		err = fmt.Errorf("it has %d keys, or does not say whether they are kept", len(n.Keys))
	}
	if err != nil {
		return r, err
	}
	r = nameRecord{NameInfo: NameInfo{n.Name, n.Token, until.UTC()}, kept: *n.Kept}
	for _, text := range n.Keys {
		var k [32]byte
		if err := decodeHex(k[:], text); err != nil {
			return r, err
		}
		r.keys = append(r.keys, k)
	}
	return r, nil
}
