package folder

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// TmpPrefix begins the names of unfinished files. After a crash, any process may
// remove such a file.
const TmpPrefix = ".tmp-"

// Replace writes a file with write, and puts it in the place of an old one if there is
// one. After a crash the name has the old content or the new, never a part.
func Replace(f FS, name string, write func(io.Writer) error) error {
	tmp := path.Join(path.Dir(name), TmpPrefix+path.Base(name))
	err := f.RemoveAll(tmp)
	if errors.Is(err, syscall.EROFS) {
		return ReadOnly(f.Path(name))
	}
	if err == nil {
		err = WriteSynced(f, tmp, write)
	}
	if err == nil {
		err = f.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, f.RemoveAll(tmp))
	}
	return f.SyncDir(path.Dir(name))
}

// ReadOnly is the error about a new file or folder on a read-only file system. It names the path that the user gave, where the
// system's error has that of an unfinished file.
func ReadOnly(path string) error { return &fs.PathError{Op: "create", Path: path, Err: syscall.EROFS} }

// WriteSynced makes a file and makes what write writes durable.
func WriteSynced(f FS, name string, write func(io.Writer) error) (err error) {
	file, err := f.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := write(file); err != nil {
		return err
	}
	return file.Sync()
}
