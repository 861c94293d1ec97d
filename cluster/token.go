package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/base/clock"
)

// ParseToken reads a token's text.
func ParseToken(text string) (Token, error) { return pki.ParseToken(strings.TrimRight(text, "\r\n")) }

// ReadTokenFile reads a token from a file. It refuses a file that other users can read.
func ReadTokenFile(path string) (Token, error) { return pki.ReadTokenFile(path) }

// WriteTokenFile writes a token to a file that only this user can read.
func WriteTokenFile(path string, t Token) error { return pki.WriteTokenFile(path, t) }

// Role says what a process may do.
type Role = pki.Role

// authorityDir is the authority's folder within the coordinator's.
const authorityDir = "authority"

// Tokens manages the tokens in a coordinator's folder, whether the coordinator runs or not.
type Tokens struct{ authority *pki.Authority }

// OpenTokens opens the tokens in a coordinator's folder. The coordinator must have been started there before.
func OpenTokens(dir string) (*Tokens, error) {
	path := filepath.Join(dir, authorityDir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no cluster; create one with engine cluster start, or name another folder with --dir", dir)
	}
	a, err := pki.OpenAuthority(path, clock.Now())
	if err != nil {
		return nil, fmt.Errorf("the cluster's authority: %w", err)
	}
	return &Tokens{a}, nil
}

// NewToken creates a token for a role. It expires after ttl.
func (t *Tokens) NewToken(role Role, ttl time.Duration) (Token, error) {
	return t.authority.NewToken(role, ttl, clock.Now())
}

// List lists the tokens, the first to expire first.
func (t *Tokens) List() []TokenInfo { return t.authority.Tokens() }

// Revoke revokes a token. A running coordinator disconnects every process that joined with it within a second.
func (t *Tokens) Revoke(id string) error { return t.authority.Revoke(id) }

// Names lists the workers' names and their holders.
func (t *Tokens) Names() []NameInfo { return t.authority.Names() }

// Release frees a worker's name for another key. A worker that still uses the name is disconnected.
func (t *Tokens) Release(name string) error { return t.authority.Release(name) }

// AddressIn reads the address of the coordinator that runs on this host with a folder.
func AddressIn(dir string) (string, error) { return journal.AddressIn(dir) }
