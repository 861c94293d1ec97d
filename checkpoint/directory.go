package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// directory reads the files of one folder and cannot be led out of it: names come from an
// allow-list, and the FS refuses links. Its errors are faults.
type directory struct {
	fsys folder.FS
	kept map[string]folder.File // verified files, kept open, since the folder may be removed
}

func newDirectory(fsys folder.FS) *directory {
	return &directory{fsys: fsys, kept: make(map[string]folder.File)}
}

func (d *directory) Close() error {
	var errs []error
	for _, f := range d.kept {
		errs = append(errs, f.Close())
	}
	clear(d.kept)
	return errors.Join(append(errs, d.fsys.Close())...)
}

func (d *directory) path() string { return d.fsys.Path(".") }

// names lists the folder.
func (d *directory) names() (names []string, err error) {
	entries, err := d.fsys.ReadDir(".")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// open opens a regular file.
func (d *directory) open(name string) (folder.File, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(), err)
	}
	f, err := d.fsys.Open(name)
	if err != nil {
		return nil, asFault(err)
	}
	return f, nil
}

// read reads a file of at most limit bytes.
func (d *directory) read(name string, limit int64) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(), err)
	}
	if f := d.kept[name]; f != nil {
		data, err := folder.ReadAll(f, limit)
		return data, asFault(err)
	}
	data, err := folder.ReadFile(d.fsys, name, limit)
	return data, asFault(err)
}

// manifest reads the manifest; a folder without one returns fs.ErrNotExist.
func (d *directory) manifest() (*Manifest, error) {
	text, err := d.read(manifestName, manifestBytesMax)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(text)
	switch {
	case errors.Is(err, ErrVersion):
		return nil, &fault{TooNew, err}
	case err != nil:
		return nil, &fault{Malformed, err}
	}
	return m, nil
}

// index reads the model's index.
func (d *directory) index() (shardOf map[string]string, err error) {
	text, err := d.read(indexName, indexBytesMax)
	if err != nil {
		return nil, err
	}
	shardOf, err = decodeIndex(text)
	if err != nil {
		return nil, faultf(Malformed, "%s: %w", d.fsys.Path(indexName), err)
	}
	return shardOf, nil
}

// has reports whether the checkpoint has the file. If there is a manifest it decides: a file that
// it doesn't list was not verified.
func (d *directory) has(m *Manifest, name string) (bool, error) {
	if m != nil {
		return m.has(name), nil
	}
	f, err := d.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, asFault(f.Close())
}
