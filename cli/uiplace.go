package cli

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// ownUI is the value of --ui without an address: the folder's own port on loopback.
const ownUI = "auto"

// The ports of pages, below those that systems hand out.
const (
	firstPagePort = 20_000
	pagePorts     = 10_000
)

// pagePlace is the address and the token of the page of a run's folder. They are the same at each start, so that
// bookmarks and open tabs stay valid. Both come from a secret of the user.
type pagePlace struct{ address, token string }

// placeOf returns the place of a folder.
func placeOf(dir string) (pagePlace, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return pagePlace{}, err
	}
	state, err := clusterDir("")
	if err != nil {
		return pagePlace{}, err
	}
	key, err := pageKey(state + "-page") // beside the coordinator's folder, which has files of its own only
	if err != nil {
		return pagePlace{}, err
	}
	of := func(what string) []byte {
		m := hmac.New(sha256.New, key)
		_, _ = io.WriteString(m, what+"\x00"+abs) // never fails, as its documentation says
		return m.Sum(nil)
	}
	port := firstPagePort + int(binary.BigEndian.Uint32(of("port"))%pagePorts)
	return pagePlace{net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), base64.RawURLEncoding.EncodeToString(of("token")[:24])}, nil
}

// pageKeyBytes is the length of the secret.
const pageKeyBytes = 32

// pageKey reads the user's secret, and makes one if there is none.
func pageKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "key")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key := make([]byte, pageKeyBytes)
	_, _ = rand.Read(key) // never fails, as its documentation says
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(key)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) { // whole, and never in place of another one
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() != pageKeyBytes || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s is not a file of %d bytes that only its user can read", path, pageKeyBytes)
	}
	return os.ReadFile(path)
}
