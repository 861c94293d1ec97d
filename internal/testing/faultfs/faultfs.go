// Package faultfs is a folder.FS for tests that wraps another one and fails for chosen files: when a file is opened,
// read or mapped, or with a short read.
//
// The package imports only internal/host/folder and the standard library. Only tests may import it.
package faultfs

import (
	"io"
	"io/fs"
	"path"
	"sync"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Fault describes the failure of a file or a folder.
type Fault struct {
	Open  error // of opening it; of a folder also of listing it
	Read  error // of every read
	Map   error // of mapping it
	Short bool  // reads end before the last byte, as if the file did
}

// FS is a file system with faults.
type FS struct {
	folder.FS
	dir    string // in the whole
	faults *faults
}

type faults struct {
	mu     sync.Mutex
	byName map[string]Fault
}

// New returns a file system without faults.
func New(under folder.FS) *FS {
	return &FS{FS: under, dir: ".", faults: &faults{byName: make(map[string]Fault)}}
}

// Set sets the fault of a name; the zero Fault removes it.
func (f *FS) Set(name string, fault Fault) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.byName[path.Join(f.dir, name)] = fault
}

func (f *FS) fault(name string) Fault {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	return f.faults.byName[path.Join(f.dir, name)]
}

// Open opens a file for reading.
func (f *FS) Open(name string) (folder.File, error) {
	fault := f.fault(name)
	if fault.Open != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Path(name), Err: fault.Open}
	}
	opened, err := f.FS.Open(name)
	if err != nil || fault == (Fault{}) {
		return opened, err
	}
	return &file{File: opened, fault: fault}, nil
}

// ReadDir lists a folder.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fault(name).Open; err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Path(name), Err: err}
	}
	return f.FS.ReadDir(name)
}

// Sub opens a folder, whose files have the faults of this file system.
func (f *FS) Sub(name string) (folder.FS, error) {
	if err := f.fault(name).Open; err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Path(name), Err: err}
	}
	sub, err := f.FS.Sub(name)
	if err != nil {
		return nil, err
	}
	return &FS{FS: sub, dir: path.Join(f.dir, name), faults: f.faults}, nil
}

// file is a file open for reading.
type file struct {
	folder.File
	fault Fault
	read  int64
}

func (f *file) Read(p []byte) (int, error) {
	p, err := f.limit(p, f.read)
	if err != nil {
		return 0, err
	}
	n, err := f.File.Read(p)
	f.read += int64(n)
	return n, err
}

func (f *file) ReadAt(p []byte, offset int64) (int, error) {
	limited, err := f.limit(p, offset)
	if err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(limited, offset)
	if err == nil && len(limited) < len(p) {
		err = io.EOF
	}
	return n, err
}

// limit returns the part of a buffer that a read from offset may fill.
func (f *file) limit(p []byte, offset int64) ([]byte, error) {
	if f.fault.Read != nil {
		return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: f.fault.Read}
	}
	if !f.fault.Short {
		return p, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	left := info.Size() - 1 - offset
	if left <= 0 {
		return nil, io.EOF
	}
	return p[:min(int64(len(p)), left)], nil
}

func (f *file) Map(size int) ([]byte, error) {
	if f.fault.Map != nil {
		return nil, f.fault.Map
	}
	return f.File.Map(size)
}
