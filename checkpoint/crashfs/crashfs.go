// Package crashfs is a checkpoint.FS for tests that forgets, when it crashes,
// what was never synced, and that fails where it is told to.
//
// It carries out every operation in a real folder, so that what the operation
// left can be read as usual: that folder is the state after kill -9. Beside it
// stands a model of the disk. Crash writes into another folder what a disk may
// hold after the power failed: of a file, the content of its last Sync or any
// part of what was written since; of a folder, the entries of its last SyncDir
// and, of the changes since, any selection, each whole or not at all (a rename
// is one change). A seed chooses.
//
// The package imports checkpoint and the standard library, and is imported by
// tests only.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
)

// ErrCrashed is the result of every operation from the crash on.
var ErrCrashed = errors.New("crashfs: crashed")

// FS is the file system. It is not safe for concurrent use.
type FS struct {
	// Free is what FreeBytes returns.
	Free int64

	base    string
	disk    *node
	ops     int
	faultAt int // the operation that fails; -1 is none
	fault   error
}

// New returns a file system in the folder base. What is there is durable.
func New(base string) (*FS, error) {
	disk, err := load(base)
	if err != nil {
		return nil, err
	}
	return &FS{Free: 1 << 40, base: base, disk: disk, faultAt: -1}, nil
}

// Ops is the number of operations so far.
func (f *FS) Ops() int { return f.ops }

// FailAt lets the n-th operation from now fail, the next being 0, and no other. A
// failing Write writes half, a failing RemoveAll removes half.
func (f *FS) FailAt(n int, err error) { f.faultAt, f.fault = f.ops+n, err }

// CrashAt is FailAt with all that follows failing too.
func (f *FS) CrashAt(n int) { f.FailAt(n, ErrCrashed) }

// step counts an operation and tells whether it fails; one that fails first does
// half of what it should.
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

// change sets entries of a folder; nil removes one.
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

// removeAll removes what is in a folder, each entry a change of its own.
func (n *node) removeAll() {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		n.entries[name].removeAll()
		n.change(change{name: nil})
	}
}

// find returns a folder of the model.
func (f *FS) find(path string) (*node, error) {
	rel, err := filepath.Rel(f.base, path)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("crashfs: %s is outside %s", path, f.base)
	}
	n := f.disk
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		if name == "." {
			continue
		}
		if n = n.entries[name]; n == nil {
			return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// change carries out an operation in the real folder, and then in the model.
func (f *FS) change(path string, act func() error, c func(dir *node, name string) change) error {
	if _, err := f.step(); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	dir, err := f.find(filepath.Dir(path))
	if err != nil {
		return err
	}
	dir.change(c(dir, filepath.Base(path)))
	return nil
}

// Create opens a file for writing, empty.
func (f *FS) Create(path string) (checkpoint.WriteFile, error) {
	file := &file{fsys: f}
	err := f.change(path, func() (err error) {
		file.opened, err = os.Create(path)
		return err
	}, func(dir *node, name string) change {
		// A file that exists keeps its node: what it had synced may survive.
		file.node = dir.entries[name]
		if file.node == nil {
			file.node = &node{}
		}
		file.node.content = nil
		return change{name: file.node}
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Mkdir makes a folder.
func (f *FS) Mkdir(path string) error {
	return f.change(path, func() error { return os.Mkdir(path, 0o755) }, func(_ *node, name string) change {
		return change{name: newDir()}
	})
}

// Symlink makes a symbolic link.
func (f *FS) Symlink(target, link string) error {
	return f.change(link, func() error { return os.Symlink(target, link) }, func(_ *node, name string) change {
		return change{name: &node{target: target}}
	})
}

// Rename renames within a folder, the only renames that a disk does at once.
func (f *FS) Rename(from, to string) error {
	if filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("crashfs: %s and %s are in different folders", from, to)
	}
	return f.change(from, func() error { return os.Rename(from, to) }, func(dir *node, name string) change {
		return change{name: nil, filepath.Base(to): dir.entries[name]}
	})
}

// Remove removes a file, a link or an empty folder.
func (f *FS) Remove(path string) error {
	return f.change(path, func() error { return os.Remove(path) }, func(_ *node, name string) change {
		return change{name: nil}
	})
}

// RemoveAll removes a folder and what is in it.
func (f *FS) RemoveAll(path string) error {
	half, err := f.step()
	if half {
		err = errors.Join(err, f.removeHalf(path))
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	n, err := f.find(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n.removeAll()
	dir, err := f.find(filepath.Dir(path))
	if err != nil {
		return err
	}
	dir.change(change{filepath.Base(path): nil})
	return nil
}

func (f *FS) removeHalf(path string) error {
	n, err := f.find(path)
	if err != nil {
		return nil // there is nothing
	}
	names := slices.Sorted(maps.Keys(n.entries))
	for _, name := range names[:(len(names)+1)/2] {
		if err := os.Remove(filepath.Join(path, name)); err != nil {
			return err
		}
		n.change(change{name: nil})
	}
	return nil
}

// Open opens a file for reading.
func (f *FS) Open(path string) (io.ReadCloser, error) {
	if _, err := f.step(); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Readlink reads a symbolic link.
func (f *FS) Readlink(path string) (string, error) {
	if _, err := f.step(); err != nil {
		return "", err
	}
	return os.Readlink(path)
}

// ReadDir lists a folder.
func (f *FS) ReadDir(path string) ([]fs.DirEntry, error) {
	if _, err := f.step(); err != nil {
		return nil, err
	}
	return os.ReadDir(path)
}

// SyncDir makes a folder's entries survive a crash.
func (f *FS) SyncDir(path string) error {
	if _, err := f.step(); err != nil {
		return err
	}
	n, err := f.find(path)
	if err != nil {
		return err
	}
	n.durable, n.pending = maps.Clone(n.entries), nil
	return nil
}

// FreeBytes returns Free.
func (f *FS) FreeBytes(string) (int64, error) {
	if _, err := f.step(); err != nil {
		return 0, err
	}
	return f.Free, nil
}

type file struct {
	fsys   *FS
	opened *os.File
	node   *node
}

func (w *file) Write(p []byte) (int, error) {
	half, fault := w.fsys.step()
	switch {
	case half:
		p = p[:len(p)/2]
	case fault != nil:
		return 0, fault
	}
	n, err := w.opened.Write(p)
	w.node.content = append(w.node.content, p[:n]...)
	return n, errors.Join(fault, err)
}

func (w *file) Sync() error {
	if _, err := w.fsys.step(); err != nil {
		return err
	}
	w.node.synced = slices.Clone(w.node.content)
	return nil
}

// Close closes the real file even when it fails, as the system does.
func (w *file) Close() error {
	_, err := w.fsys.step()
	return errors.Join(err, w.opened.Close())
}

// Crash writes what survives a power failure now into the folder into, which
// exists. A seed gives one of the possible states.
func (f *FS) Crash(into string, seed uint64) error {
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

// surviving is a file's content after a crash.
func (n *node) surviving(chance *rand.Rand) []byte {
	if slices.Equal(n.content, n.synced) || chance.IntN(2) == 0 {
		return n.synced
	}
	return n.content[:chance.IntN(len(n.content)+1)]
}
