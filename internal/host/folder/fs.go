package folder

import (
	"io"
	"io/fs"
)

// FS is a folder. Its methods may be called from several goroutines.
type FS interface {
	// Path says where a name of the folder is; "." is the folder itself.
	Path(name string) string
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Append opens a file for reading and for writing at its end, and creates it if it
	// does not exist.
	Append(name string) (File, error)
	// Create makes a file for writing. One that is there already is fs.ErrExist.
	Create(name string) (File, error)
	// Update opens a file that is there for writing at places of it.
	Update(name string) (File, error)
	// Mkdir makes one folder; its parent exists.
	Mkdir(name string) error
	// Rename renames within one folder, and replaces what has the new name.
	Rename(from, to string) error
	// RemoveAll removes a file, a link, or a folder with what is in it. That there
	// is nothing is no error.
	RemoveAll(name string) error
	// Symlink makes link point to target.
	Symlink(target, link string) error
	Readlink(name string) (string, error)
	// ReadDir lists a folder by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes a folder's entries durable.
	SyncDir(name string) error
	// FreeBytes returns the space left on the disk of a folder, or
	// errors.ErrUnsupported.
	FreeBytes(name string) (int64, error)
	// Sub opens a folder in this one, which stays open when it is renamed or removed.
	Sub(name string) (FS, error)
	Close() error
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	// Name is the file's path.
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes the content durable.
	Sync() error
	// Map maps the first size bytes into memory, where they outlive the open file.
	// Unmap gives them back.
	Map(size int) ([]byte, error)
}
