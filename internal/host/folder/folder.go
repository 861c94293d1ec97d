package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

const (
	filePerm = 0o644
	dirPerm  = 0o755
	// openTries is how often something is opened that is replaced at that very moment,
	// as Replace does under a reader.
	openTries = 10
	// lockTries is how often a lock is tried that is held: a process that looks whether it is held holds it for a moment.
	lockTries = 3
	lockAgain = 5 * time.Millisecond
)

var errReplaced = errors.New("it was replaced while it was being opened")

// Folder is a folder of the operating system.
type Folder struct {
	root *os.Root
	path string
}

// Open opens a folder, which may be reached through links.
func Open(path string) (*Folder, error) {
	// A look before the open: opening a named pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, wrongKind(path, info.Mode(), "folder")
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{root: root, path: path}, nil
}

// Close closes the folder. What was opened in it stays open.
func (d *Folder) Close() error { return d.root.Close() }

// Path says where a name of the folder is.
func (d *Folder) Path(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// Open opens a file for reading.
func (d *Folder) Open(name string) (File, error) {
	return d.file(name, func(at *os.Root, base string) (*os.File, error) {
		return d.openRegular(at, name, base, os.O_RDONLY)
	})
}

// Append opens a file for reading and for writing at its end.
func (d *Folder) Append(name string) (File, error) {
	return d.file(name, func(at *os.Root, base string) (*os.File, error) { return d.append(at, name, base) })
}

// Create makes a file for writing.
func (d *Folder) Create(name string) (File, error) {
	return d.file(name, func(at *os.Root, base string) (*os.File, error) {
		return at.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	})
}

// Update opens a file that is there for writing at places of it, and not for reading: an
// NFS client that has read nothing of a file sends the bytes that are written and no others,
// so that several hosts may write to places of one file.
func (d *Folder) Update(name string) (File, error) {
	return d.file(name, func(at *os.Root, base string) (*os.File, error) {
		return d.openRegular(at, name, base, os.O_WRONLY)
	})
}

// Lock opens a file as Append does and takes the system's exclusive lock on it;
// held is false when another process has it. The lock ends with the file.
func (d *Folder) Lock(name string) (f *os.File, held bool, err error) {
	err = d.in(name, func(at *os.Root, base string) error {
		if f, err = d.append(at, name, base); err != nil {
			return err
		}
		for range lockTries {
			if err = lockFile(f); !isLockedElsewhere(err) {
				break
			}
			time.Sleep(lockAgain)
		}
		if held = err == nil; held || isLockedElsewhere(err) {
			return nil
		}
		return errors.Join(err, f.Close())
	})
	return f, held, err
}

// Locked reports whether a process has the lock that Lock takes on a file, and opens the file for reading. A process that takes
// the lock at this very moment may find it held: see lockTries.
func (d *Folder) Locked(name string) (f File, held bool, err error) {
	f, err = d.Open(name)
	if err != nil {
		return nil, false, err
	}
	if held, err = lockedElsewhere(f); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, held, nil
}

// Mkdir makes a folder.
func (d *Folder) Mkdir(name string) error {
	return d.in(name, func(at *os.Root, base string) error { return at.Mkdir(base, dirPerm) })
}

// Rename renames within one folder.
func (d *Folder) Rename(from, to string) error {
	if path.Dir(from) != path.Dir(to) {
		return fmt.Errorf("rename %s to %s: they are in different folders", d.Path(from), d.Path(to))
	}
	return d.in(from, func(at *os.Root, base string) error { return at.Rename(base, path.Base(to)) })
}

// RemoveAll removes a file, a link or a folder.
func (d *Folder) RemoveAll(name string) error {
	err := d.in(name, func(at *os.Root, base string) error { return at.RemoveAll(base) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Symlink makes link point to target.
func (d *Folder) Symlink(target, link string) error {
	return d.in(link, func(at *os.Root, base string) error { return at.Symlink(target, base) })
}

// Readlink reads a symbolic link.
func (d *Folder) Readlink(name string) (target string, err error) {
	err = d.in(name, func(at *os.Root, base string) error {
		target, err = at.Readlink(base)
		return err
	})
	return target, err
}

// ReadDir lists a folder.
func (d *Folder) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = d.listed(name, func(f *os.File) error {
		entries, err = f.ReadDir(-1)
		return err
	})
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// SyncDir makes a folder's entries durable.
func (d *Folder) SyncDir(name string) error { return d.listed(name, syncFolder) }

// FreeBytes returns the space left on the folder's disk.
func (d *Folder) FreeBytes(name string) (bytes int64, err error) {
	err = d.listed(name, func(f *os.File) error {
		bytes, err = freeBytes(f)
		return err
	})
	return bytes, err
}

// Sub opens a folder in this one.
func (d *Folder) Sub(name string) (FS, error) {
	at, err := d.enter(name)
	if err == nil && at == d.root {
		at, err = at.OpenRoot(".")
	}
	if err != nil {
		return nil, d.placed(name, err)
	}
	return &Folder{root: at, path: d.Path(name)}, nil
}

// enter opens a folder element by element, since os.Root would follow links that
// stay inside it. leave closes it.
func (d *Folder) enter(name string) (at *os.Root, err error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, fmt.Errorf("%q is outside of %s", name, d.path)
	}
	at = d.root
	elems := strings.Split(path.Clean(name), "/")
	for i, elem := range elems {
		if elem == "." {
			continue
		}
		next, err := openDir(at, elem, d.Path(path.Join(elems[:i+1]...)))
		if err := errors.Join(err, d.leave(at)); err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// leave closes what enter has opened.
func (d *Folder) leave(at *os.Root) error {
	if at == d.root {
		return nil
	}
	return at.Close()
}

func openDir(at *os.Root, name, full string) (*os.Root, error) {
	return again(func() (*os.Root, error) { return tryDir(at, name, full) })
}

// again opens until what is open is what was looked at.
func again[T any](open func() (T, error)) (opened T, err error) {
	for range openTries {
		if opened, err = open(); !errors.Is(err, errReplaced) {
			break
		}
	}
	return opened, err
}

func tryDir(at *os.Root, name, full string) (*os.Root, error) {
	before, err := at.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, wrongKind(full, before.Mode(), "folder")
	}
	dir, err := at.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if err := same(before, dir.Stat, full); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// in acts in the folder that holds a name.
func (d *Folder) in(name string, act func(at *os.Root, base string) error) error {
	at, err := d.enter(path.Dir(name))
	if err == nil {
		err = errors.Join(act(at, path.Base(name)), d.leave(at))
	}
	return d.placed(name, err)
}

// listed acts on an open folder.
func (d *Folder) listed(name string, act func(f *os.File) error) error {
	at, err := d.enter(name)
	if err != nil {
		return d.placed(name, err)
	}
	f, err := at.Open(".")
	if err == nil {
		err = errors.Join(act(f), f.Close())
	}
	return d.placed(name, errors.Join(err, d.leave(at)))
}

func (d *Folder) file(name string, open func(at *os.Root, base string) (*os.File, error)) (File, error) {
	var f *os.File
	err := d.in(name, func(at *os.Root, base string) (err error) {
		f, err = open(at, base)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{File: f, path: d.Path(name)}, nil
}

func (d *Folder) openRegular(at *os.Root, name, base string, flag int) (*os.File, error) {
	return again(func() (*os.File, error) { return d.tryRegular(at, name, base, flag) })
}

func (d *Folder) tryRegular(at *os.Root, name, base string, flag int) (*os.File, error) {
	// A look before the open, as in Open; and os.Root would follow a link.
	before, err := at.Lstat(base)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, wrongKind(d.Path(name), before.Mode(), "regular file")
	}
	f, err := at.OpenFile(base, flag, 0)
	if err != nil {
		return nil, err
	}
	if err := same(before, func(string) (fs.FileInfo, error) { return f.Stat() }, d.Path(name)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d *Folder) append(at *os.Root, name, base string) (f *os.File, err error) {
	const tries = 3 // another process may make the file, or remove it, in between
	for range tries {
		f, err = d.openRegular(at, name, base, os.O_RDWR|os.O_APPEND)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = at.OpenFile(base, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, filePerm)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return f, err
}

// same makes sure that what was opened is what was looked at.
func same(before fs.FileInfo, stat func(string) (fs.FileInfo, error), path string) error {
	after, err := stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s: %w", path, errReplaced)
	}
	return err
}

// wrongKind is the error about an entry that is not what its name calls for.
func wrongKind(path string, mode fs.FileMode, want string) error {
	if mode&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link, which is not allowed; put the %s itself there (cp -rL copies without links)", path, want)
	}
	return fmt.Errorf("%s is not a %s", path, want)
}

// placed gives a system's error the whole path, and the usual name of what failed: os.Root knows the last element,
// and says statat.
func (d *Folder) placed(name string, err error) error {
	var onPath *fs.PathError
	if errors.As(err, &onPath) {
		onPath.Op, onPath.Path = usual(onPath.Op), d.Path(name)
	}
	var onLink *os.LinkError
	if errors.As(err, &onLink) {
		onLink.Op = usual(onLink.Op)
		onLink.Old, onLink.New = d.Path(path.Join(path.Dir(name), filepath.ToSlash(onLink.Old))),
			d.Path(path.Join(path.Dir(name), filepath.ToSlash(onLink.New)))
	}
	return err
}

// usual is what people call a system call: open for openat.
func usual(op string) string {
	switch op {
	case "stat", "lstat", "fstat":
		return op
	}
	return strings.TrimSuffix(op, "at")
}

// file is a file with its whole path.
type file struct {
	*os.File
	path string
}

func (f *file) Name() string { return f.path }

func (f *file) Map(size int) ([]byte, error) { return hostmem.MapFile(f.File, size) }

// Wrap makes an open file of the operating system a File.
func Wrap(f *os.File) File { return &file{File: f, path: f.Name()} }

// Forget frees the memory of a part of a mapping: see hostmem.Forget.
func Forget(part []byte) { hostmem.Forget(part) }

// Unmap releases a mapping of Map.
func Unmap(content []byte) error { return hostmem.UnmapFile(content) }
