package folder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Make makes a folder and those above it, durably.
func Make(path string) error { return MakeAll(osDirs{}, path) }

// Maker is the part of an FS that makes folders.
type Maker interface {
	Mkdir(name string) error
	SyncDir(name string) error
}

// MakeAll makes a folder and those above it, durably. The parent is synced even if
// the folder exists: the process that created it may have died before its own sync.
func MakeAll(m Maker, dir string) error {
	parent := filepath.Dir(dir)
	err := m.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := MakeAll(m, parent); err != nil {
			return err
		}
		err = m.Mkdir(dir)
	}
	there := errors.Is(err, fs.ErrExist)
	if err != nil && !there {
		return err
	}
	err = m.SyncDir(parent)
	if there && errors.Is(err, fs.ErrPermission) {
		return nil // someone else's folder, who made this one for us
	}
	return err
}

// osDirs makes folders on a path that a user chose.
type osDirs struct{}

func (osDirs) Mkdir(path string) error { return os.Mkdir(path, dirPerm) }

func (osDirs) SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(f), f.Close())
}
