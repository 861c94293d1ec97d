package folder

import (
	"errors"
	"io"
	"path"
)

// TmpPrefix begins the names of unfinished files. After a crash, any process may
// remove such a file.
const TmpPrefix = ".tmp-"

// Replace writes a file with write, and puts it in the place of an old one if there is
// one. After a crash the name has the old content or the new, never a part.
func Replace(f FS, name string, write func(io.Writer) error) error {
	tmp := path.Join(path.Dir(name), TmpPrefix+path.Base(name))
	err := f.RemoveAll(tmp)
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
