//go:build linux || darwin || freebsd

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkFile refuses a file with a secret that other users may read or write.
func checkFile(path string, info fs.FileInfo, owner ownership) error {
	return checkRights(path, info.Mode().Perm(), ownerOf(info), os.Geteuid(), owner)
}

// checkRights checks the mode and the owner (uid) of a file that the user self reads.
func checkRights(path string, mode fs.FileMode, uid, self int, owner ownership) error {
	bad := fs.FileMode(0o077)
	if owner == ofOthers && uid == 0 && self != 0 {
		bad = 0o027 // the system gives us the file through its group
	}
	if mode&bad != 0 {
		return fmt.Errorf("%s is %w (its mode is %04o); run chmod 600 %s", path, ErrExposed, mode, path)
	}
	if uid != self && self != 0 && (owner == ours || uid != 0) {
		return fmt.Errorf("%s is %w: it belongs to user %d, but this process runs as user %d; chown it, or copy it", path, ErrExposed, uid, self)
	}
	return nil
}

// checkDir refuses a folder in which other users may put files.
func checkDir(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", path)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s is %w (its mode is %04o); run chmod 700 %s", path, ErrExposed, mode, path)
	}
	if uid, self := ownerOf(info), os.Geteuid(); uid != self && uid != 0 && self != 0 {
		return fmt.Errorf("%s is %w: it belongs to user %d, but this process runs as user %d; use a folder of this user", path, ErrExposed, uid,
			self)
	}
	return nil
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// keepOwner gives a new file the owner of the file that it will replace, if this process runs as
// root: root may create tokens in the folder of a coordinator that runs as another user. Use it only
// in folders that checkDir has accepted; elsewhere the old file may belong to anyone.
func keepOwner(f *os.File, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		return f.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // this file system can't sync a folder
	}
	return errors.Join(err, f.Close())
}

// tryLock locks an open file; false: another process has locked it. The lock ends when the file is
// closed or the process exits.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
