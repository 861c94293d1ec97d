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

// checkRights judges the rights of a file of the user uid for the user self.
func checkRights(path string, mode fs.FileMode, uid, self int, owner ownership) error {
	bad := fs.FileMode(0o077)
	if owner == ofOthers && uid == 0 && self != 0 {
		bad = 0o027 // through its group alone can the system hand it to us
	}
	if mode&bad != 0 {
		return fmt.Errorf("%s is %w (its mode is %04o): chmod 600 %s", path, ErrExposed, mode, path)
	}
	if uid != self && self != 0 && (owner == ours || uid != 0) {
		return fmt.Errorf("%s is %w: it belongs to user %d, this process runs as %d: chown it, or copy it", path, ErrExposed, uid, self)
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
		return fmt.Errorf("%s is no folder", path)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s is %w (its mode is %04o): chmod 700 %s", path, ErrExposed, mode, path)
	}
	if uid, self := ownerOf(info), os.Geteuid(); uid != self && uid != 0 && self != 0 {
		return fmt.Errorf("%s is %w: it belongs to user %d, this process runs as %d: take a folder of this user's", path, ErrExposed, uid, self)
	}
	return nil
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// keepOwner gives a file that is to replace another that one's owner, where this process may:
// root makes tokens in the folder of a coordinator that runs as somebody else. It is for
// folders that checkDir has passed: elsewhere the other file may be anybody's.
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
		err = nil // this file system has nothing to sync for a folder
	}
	return errors.Join(err, f.Close())
}

// tryLock takes the lock on an open file, or says that another has it. It ends when the file
// is closed, be it by the process's death.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
