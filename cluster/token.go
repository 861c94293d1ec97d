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

// ReadTokenFile reads a token from a file, which nobody else may read.
func ReadTokenFile(path string) (Token, error) { return pki.ReadTokenFile(path) }

// WriteTokenFile writes a token into a file that nobody else may read.
func WriteTokenFile(path string, t Token) error { return pki.WriteTokenFile(path, t) }

// Role says what a process may do.
type Role = pki.Role

// authorityDir is the folder of the authority, in that of the coordinator.
const authorityDir = "authority"

// Tokens are those of a coordinator's folder, whether it runs or not.
type Tokens struct{ authority *pki.Authority }

// OpenTokens opens the tokens in the folder of a coordinator that was started before.
func OpenTokens(dir string) (*Tokens, error) {
	path := filepath.Join(dir, authorityDir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cluster in %s: engine cluster start makes one, --dir names another folder", dir)
	}
	a, err := pki.OpenAuthority(path, clock.Now())
	if err != nil {
		return nil, fmt.Errorf("the cluster's authority: %w", err)
	}
	return &Tokens{a}, nil
}

// NewToken makes a token for a role that expires.
func (t *Tokens) NewToken(role Role, ttl time.Duration) (Token, error) {
	return t.authority.NewToken(role, ttl, clock.Now())
}

// List lists the tokens, the first to expire first.
func (t *Tokens) List() []TokenInfo { return t.authority.Tokens() }

// Revoke ends a token, and what it has let in: a coordinator that runs closes its connections within a second.
func (t *Tokens) Revoke(id string) error { return t.authority.Revoke(id) }

// Names lists the names that workers have.
func (t *Tokens) Names() []NameInfo { return t.authority.Names() }

// Release ends a worker's hold on its name, and the worker's membership.
func (t *Tokens) Release(name string) error { return t.authority.Release(name) }

// AddressIn reads where the coordinator of a folder is reached, which runs on this host.
func AddressIn(dir string) (string, error) { return journal.AddressIn(dir) }
