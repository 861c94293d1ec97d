package checkpoint

import (
	"fmt"
	"io"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// FS is the folder of a run, with everything that a Store reads and writes. Its names are relative
// to that folder and cannot lead out of it.
type FS = folder.FS

// File is an open file of an FS.
type File = folder.File

// OpenFS opens a folder of the operating system.
func OpenFS(path string) (FS, error) {
	f, err := folder.Open(path)
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	return f, nil
}

// WriteFileAtomic replaces a file. After a crash the file has either the old or the new content.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	err := folder.Replace(fsys, name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s (%d bytes): %w", fsys.Path(name), len(data), AsNoSpace(err))
	}
	return nil
}
