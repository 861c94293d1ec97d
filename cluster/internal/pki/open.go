package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityFile = "authority.pem"
	tokensFile    = "tokens.json"
	lockFile      = ".lock"
)

func authorityPath(dir string) string { return filepath.Join(dir, authorityFile) }
func tokensPath(dir string) string    { return filepath.Join(dir, tokensFile) }

// OpenAuthority opens the authority in a folder, or makes one in a folder without one. Only this user may
// have access to the folder and the key. A damaged file is an error and stays unchanged.
func OpenAuthority(dir string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the authority's folder: %w", err)
	}
	if err := checkDir(dir); err != nil {
		return nil, fmt.Errorf("check the authority's folder: %w", err)
	}
	a, err := openOrMake(dir, now)
	if err != nil {
		return nil, err
	}
	if err := a.checkTime(now); err != nil {
		return nil, fmt.Errorf("%s: %w", authorityPath(dir), err)
	}
	a.tokens = &tokenStore{dir: dir}
	a.issued = &ledgerStore{dir: dir}
	if err := errors.Join(a.tokens.refresh(), a.issued.read(func(*ledger) error { return nil })); err != nil {
		return nil, err
	}
	return a, nil
}

// openOrMake opens or makes the authority under the lock: if two processes start at once, one makes it
// and the other opens it.
func openOrMake(dir string, now time.Time) (*Authority, error) {
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := readAuthority(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if _, err := os.Lstat(tokensPath(dir)); !errors.Is(err, fs.ErrNotExist) {
		return nil,
			fmt.Errorf("%s is missing, but %s exists (%w); restore it, or move %s away to make a new authority, which all processes have to join again",
				authorityPath(dir), tokensFile, ErrDamaged, tokensPath(dir))
	}
	if a, err = NewAuthority(now); err != nil {
		return nil, err
	}
	content, err := encodeKey(a.key, a.root.Raw)
	if err != nil {
		return nil, err
	}
	if err := writePrivate(authorityPath(dir), content); err != nil {
		return nil, err
	}
	return a, nil
}

func readAuthority(dir string) (*Authority, error) {
	path := authorityPath(dir)
	content, err := readPrivate(path, keyFileBytesMax, ours)
	if err != nil {
		return nil, fmt.Errorf("read the authority's key: %w", err)
	}
	a, err := decodeAuthority(content)
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %w; restore it, or move %s away to make a new authority, which all processes have to join again",
			path, ErrDamaged, err, dir)
	}
	return a, nil
}

func decodeAuthority(content []byte) (*Authority, error) {
	key, certs, err := decodeKey(content)
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("it has %d certificates; want only the root", len(certs))
	}
	root, err := x509.ParseCertificate(certs[0])
	if err != nil {
		return nil, err
	}
	if !root.IsCA {
		return nil, errors.New("its certificate does not belong to an authority")
	}
	if err := root.CheckSignatureFrom(root); err != nil {
		return nil, fmt.Errorf("check its certificate: %w", err)
	}
	if !isKeyOf(key, root) {
		return nil, errors.New("its certificate is for another private key")
	}
	return &Authority{key: key, root: root}, nil
}
