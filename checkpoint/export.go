package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Export writes the files of a content into a new folder, for other programs, without a manifest.
// The folder appears complete or not at all. Nothing that exists is replaced: the error is then
// fs.ErrExist.
func Export(ctx context.Context, to string, c Content) error {
	files, err := c.plan()
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	bytesNeeded := int64(0)
	for _, f := range files {
		bytesNeeded += f.bytes + fileOverheadBytes
	}
	return export(to, bytesNeeded, func(s *Store, tmp string) error { return s.fillExport(ctx, tmp, files) })
}

// ExportFile writes a file of a known size for other programs, in the same way as Export.
func ExportFile(ctx context.Context, to string, size int64, write func(io.Writer) error) error {
	return export(to, size+fileOverheadBytes, func(s *Store, tmp string) error {
		_, err := s.writeFile(ctx, ".", plannedFile{name: tmp, bytes: size, write: write})
		return err
	})
}

// ExportedFile is a file of ExportFiles.
type ExportedFile struct {
	Name  string
	Bytes int64 // that Write writes
	Write func(io.Writer) error
}

// ExportFiles writes files into a new folder for other programs, in the same way as Export.
func ExportFiles(ctx context.Context, to string, files []ExportedFile) error {
	planned, bytesNeeded := make([]plannedFile, len(files)), int64(0)
	for i, f := range files {
		if err := checkName(f.Name); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		planned[i] = plannedFile{name: f.Name, bytes: f.Bytes, write: f.Write}
		bytesNeeded += f.Bytes + fileOverheadBytes
	}
	return export(to, bytesNeeded, func(s *Store, tmp string) error { return s.fillExport(ctx, tmp, planned) })
}

// export lets fill make a file or a folder under a temporary name, and renames it.
func export(to string, bytesNeeded int64, fill func(s *Store, tmp string) error) (err error) {
	given := to
	to, err = filepath.Abs(to)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "export", Path: to, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent, name := filepath.Split(to)
	if err := folder.Make(parent); err != nil {
		return err
	}
	fsys, err := OpenFS(parent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	s := &Store{fsys: fsys, dir: "."}
	tmp := folder.TmpPrefix + "export-" + name
	if err := fsys.RemoveAll(tmp); err != nil { // left by a crash
		if errors.Is(err, syscall.EROFS) {
			return folder.ReadOnly(given)
		}
		return err
	}
	if err := s.checkSpace(bytesNeeded); err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	err = fill(s, tmp)
	if _, there := os.Lstat(to); err == nil && there == nil {
		err = &fs.PathError{Op: "export", Path: to, Err: fs.ErrExist}
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", to, AsNoSpace(err)), fsys.RemoveAll(tmp))
	}
	return fsys.SyncDir(".")
}

func (s *Store) fillExport(ctx context.Context, dir string, files []plannedFile) error {
	if err := s.fsys.Mkdir(dir); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := s.writeFile(ctx, dir, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return s.fsys.SyncDir(dir)
}
