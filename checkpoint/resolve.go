package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// meantTries is how often OpenAt and VerifyAt turn to another checkpoint.
const meantTries = 10

// OpenAt opens the checkpoint that a person means by a path: see Resolve. Where a run
// that goes on removes it meanwhile, it is the one that the path means by then.
func OpenAt(path string) (c *Checkpoint, err error) {
	drop := func() {
		if c != nil { // it had lost its manifest before that was read
			_ = c.Close()
		}
	}
	resolveErr := meant(path, func(dir string) (sure bool) {
		drop()
		c, err = Open(dir)
		return err == nil && c.Manifest != nil
	})
	if resolveErr != nil {
		drop()
		return nil, resolveErr
	}
	return c, err
}

// VerifyAt is Verify for the checkpoint that a person means by a path, as OpenAt.
func VerifyAt(path string) (report *Report, err error) {
	resolveErr := meant(path, func(dir string) (sure bool) {
		report, err = Verify(dir)
		return err == nil && report.Intact()
	})
	if resolveErr != nil {
		return nil, resolveErr
	}
	return report, err
}

// meant uses what a path means, and once more if that is gone from its place: what use
// is not sure of then was about something half removed.
func meant(path string, use func(dir string) (sure bool)) error {
	for range meantTries {
		dir, err := Resolve(path)
		if err != nil {
			return err
		}
		before, beforeErr := standing(dir)
		if use(dir) {
			return nil
		}
		if after, afterErr := standing(dir); beforeErr == nil && afterErr == nil && before.same(after) {
			return nil
		}
	}
	return nil
}

// place is which folder stands at a path. Its file alone does not say: that of one that was
// removed may be given at once to the next one that is made, and `last` points to that.
type place struct {
	path string // without links
	info fs.FileInfo
}

func standing(dir string) (p place, err error) {
	if p.path, err = filepath.EvalSymlinks(dir); err == nil {
		p.info, err = os.Stat(p.path)
	}
	return p, err
}

func (p place) same(other place) bool {
	return p.path == other.path && os.SameFile(p.info, other.info)
}

// Resolve finds the checkpoint that a person means by a path: a checkpoint or
// model directory itself; a run's output folder or its folder checkpoints/, of
// which it is the one that `last` points to, else the newest intact one.
func Resolve(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s: %w: it is a file; give the folder of a run or of a checkpoint", path, ErrNotCheckpoint)
	}
	if isCheckpoint(path) {
		return path, nil
	}
	fsys, err := OpenFS(path)
	if err != nil {
		return "", err
	}
	found, err := resolve(fsys)
	return found, errors.Join(err, fsys.Close())
}

func resolve(fsys FS) (string, error) {
	for _, dir := range []string{StoreName, "."} {
		s := &Store{fsys: fsys, dir: dir}
		found, err := s.current()
		if !errors.Is(err, ErrNone) {
			return found, err
		}
	}
	return "", fmt.Errorf("%s: %w, nor a folder that has one: looked for %s, %s and %s in it, and for %s and %s* in it and in %s/",
		fsys.Path("."), ErrNotCheckpoint, manifestName, modelName, indexName, lastName, stepPrefix, StoreName)
}

func isCheckpoint(path string) bool {
	for _, name := range []string{manifestName, modelName, indexName} {
		if _, err := os.Lstat(filepath.Join(path, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// current returns the checkpoint that `last` points to. Without the pointer, or
// when the checkpoint is gone, it is the newest intact one.
func (s *Store) current() (path string, err error) {
	for range meantTries {
		step, ok, err := s.Last()
		if err != nil {
			return "", err
		}
		if !ok {
			break
		}
		entries, err := s.find(step)
		if err != nil {
			return "", err
		}
		if len(entries) > 0 && !entries[0].folder { // whoever opens the path would follow a link
			_, err := s.fsys.Sub(s.name(entries[0].name))
			return "", asFault(err)
		}
		if len(entries) > 0 {
			return s.path(entries[0].name), nil
		}
		if now, ok, err := s.Last(); err == nil && ok && now == step {
			break // it is gone, and no run has just put another in its place
		}
	}
	entries, err := s.list()
	if err != nil {
		return "", err
	}
	c, _, err := s.first(entries)
	if err != nil {
		return "", err
	}
	return c.Dir(), c.Close()
}
