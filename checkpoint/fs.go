package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a file system as far as a Store needs it: all that it writes, and the
// reads on which it decides what to write. The files of a checkpoint are read
// from the operating system directly.
type FS interface {
	// Create opens a file for writing, empty.
	Create(path string) (WriteFile, error)
	// Open opens a file for reading.
	Open(path string) (io.ReadCloser, error)
	// Mkdir makes one folder; its parent exists.
	Mkdir(path string) error
	Rename(from, to string) error
	// Remove removes a file, a link or an empty folder.
	Remove(path string) error
	RemoveAll(path string) error
	// Symlink makes link point to target.
	Symlink(target, link string) error
	Readlink(path string) (string, error)
	// ReadDir lists a folder.
	ReadDir(path string) ([]fs.DirEntry, error)
	// SyncDir makes the folder's entries durable.
	SyncDir(path string) error
	// FreeBytes returns the space left on the disk of the folder, or
	// errors.ErrUnsupported.
	FreeBytes(path string) (int64, error)
}

// WriteFile is a file open for writing. Sync makes its content durable.
type WriteFile interface {
	io.WriteCloser
	Sync() error
}

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

const (
	filePerm = 0o644
	dirPerm  = 0o755
)

func (osFS) Create(path string) (WriteFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, filePerm)
}

func (osFS) Open(path string) (io.ReadCloser, error)    { return os.Open(path) }
func (osFS) Mkdir(path string) error                    { return os.Mkdir(path, dirPerm) }
func (osFS) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFS) Remove(path string) error                   { return os.Remove(path) }
func (osFS) RemoveAll(path string) error                { return os.RemoveAll(path) }
func (osFS) Symlink(target, link string) error          { return os.Symlink(target, link) }
func (osFS) Readlink(path string) (string, error)       { return os.Readlink(path) }
func (osFS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osFS) SyncDir(path string) error                  { return syncDir(path) }
func (osFS) FreeBytes(path string) (int64, error)       { return freeBytes(path) }

// WriteFileAtomic replaces the file at path: after a crash it holds the old
// content or the new, never a part.
func WriteFileAtomic(fsys FS, path string, data []byte) error {
	tmp := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path))
	err := writeSynced(fsys, tmp, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err != nil {
		err = errors.Join(err, removeIfThere(fsys, tmp))
		return fmt.Errorf("writing %s (%d bytes): %w", path, len(data), asNoSpace(err))
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// writeSynced creates the file at path and makes what write puts out durable.
func writeSynced(fsys FS, path string, write func(io.Writer) error) (err error) {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := write(f); err != nil {
		return err
	}
	return f.Sync()
}

// makeDirs makes a folder and those above it durably. The parent is synced even
// if the folder is there: whoever made it may have died before its own sync.
func makeDirs(fsys FS, dir string) error {
	parent := filepath.Dir(dir)
	err := fsys.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDirs(fsys, parent); err != nil {
			return err
		}
		err = fsys.Mkdir(dir)
	}
	there := errors.Is(err, fs.ErrExist)
	if err != nil && !there {
		return err
	}
	err = fsys.SyncDir(parent)
	if there && errors.Is(err, fs.ErrPermission) {
		return nil // someone else's folder, who made this one for us
	}
	return err
}

func removeIfThere(fsys FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// asNoSpace adds ErrNoSpace to what the system reports on a full disk.
func asNoSpace(err error) error {
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
