// Package crashfs is a folder.FS for tests that simulates power failures: a crash loses unsynced data. It can also
// fail at a chosen operation.
//
// It performs every operation in a real folder, which then has the state after kill -9. It also keeps a model of the
// disk. Crash writes a state that a disk may have after a power failure to another folder. A file has the content of
// its last Sync, and any part of the later writes. A folder has the entries of its last SyncDir, and any selection of
// the later changes, each completely or not at all (a rename is one change). A seed selects the state.
//
// The package imports only internal/host/folder and the standard library. Only tests may import it.
package crashfs

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// ErrCrashed is the error of every operation after the crash.
var ErrCrashed = errors.New("crashfs: crashed")

// FS is a file system that can crash.
type FS struct {
	// Free is the result of FreeBytes.
	Free int64

	under *folder.Folder

	mu      sync.Mutex
	disk    *node
	ops     int
	faultAt int // the operation that fails; -1 is none
	fault   error
}

// New returns a file system in the folder base, whose present content counts as synced.
func New(base string) (*FS, error) {
	disk, err := load(base)
	if err != nil {
		return nil, err
	}
	under, err := folder.Open(base)
	if err != nil {
		return nil, err
	}
	return &FS{Free: 1 << 40, under: under, disk: disk, faultAt: -1}, nil
}

// Ops is the number of operations so far.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// FailAt makes only the n-th operation from now fail; the next one is 0. A failing Write writes half of its data, a
// failing RemoveAll removes half.
func (f *FS) FailAt(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faultAt, f.fault = f.ops+n, err
}

// CrashAt is like FailAt, but all later operations fail too.
func (f *FS) CrashAt(n int) { f.FailAt(n, ErrCrashed) }

// step counts an operation and reports whether it fails; a failing one first does half of its work. mu is held.
func (f *FS) step() (half bool, err error) {
	op := f.ops
	f.ops++
	if f.faultAt < 0 || op < f.faultAt || op > f.faultAt && !errors.Is(f.fault, ErrCrashed) {
		return false, nil
	}
	return op == f.faultAt, f.fault
}

// node is a file, a folder or a link of the model.
type node struct {
	content, synced []byte // of a file
	target          string // of a link

	entries map[string]*node // of a folder: as they are
	durable map[string]*node // at the last SyncDir
	pending []change         // since
}

// change sets entries of a folder; nil removes an entry.
type change map[string]*node

func newDir() *node {
	return &node{entries: make(map[string]*node), durable: make(map[string]*node)}
}

// load builds the model of a folder.
func load(path string) (*node, error) {
	items, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	dir := newDir()
	for _, item := range items {
		path, child := filepath.Join(path, item.Name()), &node{}
		switch {
		case item.IsDir():
			child, err = load(path)
		case item.Type() == fs.ModeSymlink:
			child.target, err = os.Readlink(path)
		default:
			child.content, err = os.ReadFile(path)
			child.synced = child.content
		}
		if err != nil {
			return nil, err
		}
		dir.entries[item.Name()] = child
	}
	dir.durable = maps.Clone(dir.entries)
	return dir, nil
}

func (n *node) change(c change) {
	apply(n.entries, c)
	n.pending = append(n.pending, c)
}

func apply(entries map[string]*node, c change) {
	for name, child := range c {
		if child == nil {
			delete(entries, name)
		} else {
			entries[name] = child
		}
	}
}

// removeAll removes the content of a folder, each entry as a separate change.
func (n *node) removeAll() {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		n.entries[name].removeAll()
		n.change(change{name: nil})
	}
}

// find returns a folder of the model.
func (f *FS) find(name string) (*node, error) {
	n := f.disk
	for elem := range strings.SplitSeq(path.Clean(name), "/") {
		if elem == "." {
			continue
		}
		if n = n.entries[elem]; n == nil {
			return nil, &fs.PathError{Op: "find", Path: f.Path(name), Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// change performs an operation in the real folder, and then in the model.
func (f *FS) change(name string, act func() error, c func(dir *node, base string) change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.step(); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	dir, err := f.find(path.Dir(name))
	if err != nil {
		return err
	}
	dir.change(c(dir, path.Base(name)))
	return nil
}

// look performs an operation that changes nothing.
func (f *FS) look(act func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.step(); err != nil {
		return err
	}
	return act()
}

// Path returns the path of a name in the real folder.
func (f *FS) Path(name string) string { return f.under.Path(name) }

// Create creates a file for writing.
func (f *FS) Create(name string) (folder.File, error) {
	opened := &file{fsys: f}
	err := f.change(name, func() (err error) {
		opened.File, err = f.under.Create(name)
		return err
	}, func(_ *node, base string) change {
		opened.node = &node{}
		return change{base: opened.node}
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Append opens a file for writing at its end.
func (f *FS) Append(name string) (folder.File, error) {
	opened := &file{fsys: f}
	err := f.change(name, func() (err error) {
		opened.File, err = f.under.Append(name)
		return err
	}, func(dir *node, base string) change {
		if opened.node = dir.entries[base]; opened.node != nil {
			return nil
		}
		opened.node = &node{}
		return change{base: opened.node}
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Update opens an existing file for writing at offsets.
func (f *FS) Update(name string) (folder.File, error) {
	opened := &file{fsys: f}
	err := f.look(func() (err error) {
		dir, err := f.find(path.Dir(name))
		if err != nil {
			return err
		}
		opened.node = dir.entries[path.Base(name)]
		opened.File, err = f.under.Update(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Open opens a file for reading.
func (f *FS) Open(name string) (opened folder.File, err error) {
	err = f.look(func() error {
		opened, err = f.under.Open(name)
		return err
	})
	return opened, err
}

// Mkdir creates a folder.
func (f *FS) Mkdir(name string) error {
	return f.change(name, func() error { return f.under.Mkdir(name) }, func(_ *node, base string) change {
		return change{base: newDir()}
	})
}

// Symlink creates a symbolic link.
func (f *FS) Symlink(target, link string) error {
	return f.change(link, func() error { return f.under.Symlink(target, link) }, func(_ *node, base string) change {
		return change{base: &node{target: target}}
	})
}

// Rename renames within a folder; only such renames are atomic on disk.
func (f *FS) Rename(from, to string) error {
	return f.change(from, func() error { return f.under.Rename(from, to) }, func(dir *node, base string) change {
		return change{base: nil, path.Base(to): dir.entries[base]}
	})
}

// RemoveAll removes a file, a link, or a folder with its content.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	half, err := f.step()
	if half {
		err = errors.Join(err, f.removeHalf(name))
	}
	if err != nil {
		return err
	}
	if err := f.under.RemoveAll(name); err != nil {
		return err
	}
	n, err := f.find(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n.removeAll()
	dir, err := f.find(path.Dir(name))
	if err != nil {
		return err
	}
	dir.change(change{path.Base(name): nil})
	return nil
}

func (f *FS) removeHalf(name string) error {
	n, err := f.find(name)
	if err != nil {
		return nil // there is nothing
	}
	names := slices.Sorted(maps.Keys(n.entries))
	for _, base := range names[:(len(names)+1)/2] {
		if err := f.under.RemoveAll(path.Join(name, base)); err != nil {
			return err
		}
		n.change(change{base: nil})
	}
	return nil
}

// Readlink reads a symbolic link.
func (f *FS) Readlink(name string) (target string, err error) {
	err = f.look(func() error {
		target, err = f.under.Readlink(name)
		return err
	})
	return target, err
}

// ReadDir lists a folder.
func (f *FS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = f.look(func() error {
		entries, err = f.under.ReadDir(name)
		return err
	})
	return entries, err
}

// SyncDir makes a folder's entries survive a crash.
func (f *FS) SyncDir(name string) error {
	return f.look(func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		n.durable, n.pending = maps.Clone(n.entries), nil
		return nil
	})
}

// FreeBytes returns Free.
func (f *FS) FreeBytes(string) (bytes int64, err error) {
	err = f.look(func() error {
		bytes = f.Free
		return nil
	})
	return bytes, err
}

// Sub opens a folder for reading.
func (f *FS) Sub(name string) (sub folder.FS, err error) {
	err = f.look(func() error {
		sub, err = f.under.Sub(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reader{FS: sub, fsys: f}, nil
}

// Close closes the real folder.
func (f *FS) Close() error { return f.under.Close() }

// reader is a read-only folder of the file system.
type reader struct {
	folder.FS
	fsys *FS
}

func (r *reader) Open(name string) (opened folder.File, err error) {
	err = r.fsys.look(func() error {
		opened, err = r.FS.Open(name)
		return err
	})
	return opened, err
}

// file is a file open for writing.
type file struct {
	folder.File
	fsys *FS
	node *node
}

func (w *file) Write(p []byte) (int, error) {
	return w.put(p, func(p []byte) (int, error) {
		n, err := w.File.Write(p)
		w.node.content = append(w.node.content, p[:n]...)
		return n, err
	})
}

// WriteAt writes at an offset within the file.
func (w *file) WriteAt(p []byte, offset int64) (int, error) {
	return w.put(p, func(p []byte) (int, error) {
		n, err := w.File.WriteAt(p, offset)
		w.node.content = slices.Clone(w.node.content) // synced may share its memory
		copy(w.node.content[offset:], p[:n])
		return n, err
	})
}

// put writes all of p or, at a fault, half of it or nothing.
func (w *file) put(p []byte, write func([]byte) (int, error)) (int, error) {
	w.fsys.mu.Lock()
	defer w.fsys.mu.Unlock()
	half, fault := w.fsys.step()
	switch {
	case half:
		p = p[:len(p)/2]
	case fault != nil:
		return 0, fault
	}
	n, err := write(p)
	return n, errors.Join(fault, err)
}

func (w *file) Truncate(size int64) error {
	return w.fsys.look(func() error {
		if err := w.File.Truncate(size); err != nil {
			return err
		}
		content := make([]byte, size)
		copy(content, w.node.content)
		w.node.content = content
		return nil
	})
}

func (w *file) Sync() error {
	return w.fsys.look(func() error {
		w.node.synced = slices.Clone(w.node.content)
		return nil
	})
}

// Close closes the real file even if it fails, as the system does.
func (w *file) Close() error {
	return errors.Join(w.fsys.look(func() error { return nil }), w.File.Close())
}

// Crash writes one of the states that a power failure now could leave to the existing folder into. The seed selects
// the state.
func (f *FS) Crash(into string, seed uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disk.survive(into, rand.New(rand.NewPCG(seed, 0)))
}

func (n *node) survive(into string, chance *rand.Rand) error {
	entries := maps.Clone(n.durable)
	for _, c := range n.pending {
		if chance.IntN(2) == 0 {
			apply(entries, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted: chance is to depend on the seed alone
		path, child := filepath.Join(into, name), entries[name]
		var err error
		switch {
		case child.entries != nil:
			if err = os.Mkdir(path, 0o755); err == nil {
				err = child.survive(path, chance)
			}
		case child.target != "":
			err = os.Symlink(child.target, path)
		default:
			err = os.WriteFile(path, child.surviving(chance), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// surviving returns a file's content after a crash.
func (n *node) surviving(chance *rand.Rand) []byte {
	if bytes.Equal(n.content, n.synced) || chance.IntN(2) == 0 {
		return n.synced
	}
	kept := 0 // only appended data may be lost
	if bytes.HasPrefix(n.content, n.synced) {
		kept = len(n.synced)
	}
	return n.content[:kept+chance.IntN(len(n.content)-kept+1)]
}
