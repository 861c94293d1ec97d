package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// directory reads the files of one folder and can't be led out of it: names come
// from the allow-list, links are refused, and os.Root holds where both fail.
type directory struct {
	path string
	root *os.Root
}

func openDirectory(path string) (*directory, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &directory{path: path, root: root}, nil
}

func (d *directory) Close() error { return d.root.Close() }

// exists tells whether the folder has an entry of that name, of whatever kind.
func (d *directory) exists(name string) bool {
	_, err := d.root.Lstat(name)
	return err == nil
}

// open opens a regular file.
func (d *directory) open(name string) (*os.File, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	// A look before the open: opening a named pipe would wait for its writer.
	before, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link: a checkpoint consists of its own files (cp -rL makes such a copy)", filepath.Join(d.path, name))
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", filepath.Join(d.path, name))
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced while it was opened", filepath.Join(d.path, name))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// read reads a file of at most limit bytes.
func (d *directory) read(name string, limit int64) (data []byte, err error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", filepath.Join(d.path, name), info.Size(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// manifest reads the manifest; a folder without one gives nil.
func (d *directory) manifest() (*Manifest, error) {
	text, err := d.read(manifestName, ManifestBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeManifest(text)
}

// index reads the model's index.
func (d *directory) index() (shardOf map[string]string, err error) {
	text, err := d.read(indexName, IndexBytesMax)
	if err != nil {
		return nil, err
	}
	shardOf, err = decodeIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(d.path, indexName), err)
	}
	return shardOf, nil
}

// names lists the folder, up to a limit.
func (d *directory) names() (names []string, err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	entries, err := f.ReadDir(2 * FilesMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
