package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// privateBase is where the sockets are whose run's folder can't have one. It is fixed: processes of one user may have different
// environments, and must find the same socket.
var privateBase = "/tmp"

// inFolder returns the path of the socket in a run's folder; "": the path is too long.
func inFolder(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path := filepath.Join(abs, rundir.SocketFile); len(path) <= limitPathBytes {
		return path, nil
	}
	return "", nil
}

// elsewhere returns the path of the socket of a run whose folder can't have one.
func elsewhere(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(abs))
	return filepath.Join(private(), hex.EncodeToString(hash[:8])+".sock"), nil
}

// private returns the user's own folder for sockets.
func private() string { return filepath.Join(privateBase, "troupe-"+strconv.Itoa(os.Getuid())) }

// makePrivate makes that folder, and checks that no other user can change it.
func makePrivate() error {
	dir := private()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkPrivate(dir)
}

func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	uid, known := owner(info)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder; remove it", dir)
	case known && uid != os.Getuid():
		return fmt.Errorf("%s belongs to the user %s; it must belong to you", dir, userName(uid))
	case known && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s has the mode %04o, which lets other users in: chmod 700 %[1]s", dir, info.Mode().Perm())
	}
	return nil
}

// places returns the paths at which the socket of a run may be.
func places(dir string) ([]string, error) {
	near, err := inFolder(dir)
	if err != nil {
		return nil, err
	}
	far, err := elsewhere(dir)
	if err != nil {
		return nil, err
	}
	if near == "" {
		return []string{far}, nil
	}
	return []string{near, far}, nil
}
