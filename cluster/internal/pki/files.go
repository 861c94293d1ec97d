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

// ownership says whose a file may be.
type ownership int

const (
	// ours is a file that this program wrote.
	ours ownership = iota
	// ofOthers is a file that may also have been put there by the system, which belongs to
	// root and is readable by a group that has this process alone: secrets of Kubernetes and
	// credentials of systemd are.
	ofOthers
)

// readPrivate reads a file that holds a secret.
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
		return nil, fmt.Errorf("%s has more than %d bytes, the most that such a file has: is it the right one?", path, bytesMax)
	}
	return content, nil
}

// writePrivate replaces a file by one that nobody else may read: after a crash it holds the old
// content or the new. Two writers at once need a lock.
func writePrivate(path string, content []byte) error {
	return replacePrivate(path, content, func(*os.File, string) error { return nil })
}

// replacePrivate lets own change the owner of the new file, before there is anything in it.
func replacePrivate(path string, content []byte, own func(f *os.File, path string) error) (err error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	tmp := filepath.Join(dir, ".tmp-"+base)
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s (%d bytes): %w", path, len(content), err)
		}
	}()
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// O_EXCL: in a folder that others may write this must not follow a link of theirs.
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

// fileVersion tells whether a file was replaced.
type fileVersion struct{ info fs.FileInfo }

func versionOf(path string) (fileVersion, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileVersion{}, nil
	}
	return fileVersion{info}, err
}

func (v fileVersion) exists() bool { return v.info != nil }

// same compares the times too: the number of a file that is gone is given again.
func (v fileVersion) same(w fileVersion) bool {
	if v.info == nil || w.info == nil {
		return v.info == nil && w.info == nil
	}
	return os.SameFile(v.info, w.info) && v.info.ModTime().Equal(w.info.ModTime()) && v.info.Size() == w.info.Size()
}

// lockDir takes the lock of an authority's folder. It waits for another process, at most
// lockWait.
func lockDir(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the authority: %w", err)
	}
	for until := time.Now().Add(lockWait); ; time.Sleep(10 * time.Millisecond) {
		locked, err := tryLock(f)
		if locked {
			return func() { _ = f.Close() }, nil
		}
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("another process has held %s for %v: end it, or try again", path, lockWait)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking the authority: %w", err), f.Close())
		}
	}
}
