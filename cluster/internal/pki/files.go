package pki

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ownership says which user a file may belong to.
type ownership int

const (
	// ours: this program wrote the file.
	ours ownership = iota
	// ofOthers: the system may have put the file there, such as a Kubernetes secret or a systemd
	// credential. It belongs to root and is readable by a group with only this process in it.
	ofOthers
)

// readPrivate reads a file with a secret.
func readPrivate(path string, bytesMax int64, owner ownership) (content []byte, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder; want a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, info, owner); err != nil {
		return nil, err
	}
	content, err = io.ReadAll(io.LimitReader(f, bytesMax+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > bytesMax {
		return nil, fmt.Errorf("%s has more than %d bytes, the limit for such a file; check that it is the right file", path, bytesMax)
	}
	return content, nil
}

// writePrivate replaces a file with one that only this user may read. After a crash the file has the
// old or the new content. Concurrent writers need a lock.
func writePrivate(path string, content []byte) error {
	return replacePrivate(path, content, func(*os.File, string) error { return nil })
}

// replacePrivate is writePrivate; own may change the owner of the new file before its content is written.
func replacePrivate(path string, content []byte, own func(f *os.File, path string) error) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	tmp := filepath.Join(dir, ".tmp-"+base)
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s (%d bytes): %w", path, len(content), err)
		}
	}()
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// O_EXCL: must not follow another user's link in a folder that others may write.
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = own(f, path); err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(dir)
}

// fileVersion identifies a version of a file, to detect whether the file was replaced.
type fileVersion struct{ info fs.FileInfo }

func versionOf(path string) (fileVersion, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileVersion{}, nil
	}
	return fileVersion{info}, err
}

func (v fileVersion) exists() bool { return v.info != nil }

// same also compares the times, because the system reuses the inode numbers of removed files.
func (v fileVersion) same(w fileVersion) bool {
	if v.info == nil || w.info == nil {
		return v.info == nil && w.info == nil
	}
	return os.SameFile(v.info, w.info) && v.info.ModTime().Equal(w.info.ModTime()) && v.info.Size() == w.info.Size()
}

// lockDir locks an authority's folder. It waits up to lockWait for another process.
func lockDir(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the authority's folder: %w", err)
	}
	for until := time.Now().Add(lockWait); ; time.Sleep(10 * time.Millisecond) {
		locked, err := tryLock(f)
		if locked {
			return func() { _ = f.Close() }, nil
		}
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("another process has locked %s for %v; stop it, or try again", path, lockWait)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock the authority's folder: %w", err), f.Close())
		}
	}
}
