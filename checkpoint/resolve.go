package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
	for _, dir := range []string{filepath.Join(path, storeName), path} {
		s := &Store{fsys: OS(), dir: dir}
		found, err := s.current()
		if !errors.Is(err, ErrNone) {
			return found, err
		}
	}
	return "", fmt.Errorf("%s: %w, nor a folder that has one: looked for %s, %s and %s in it, and for %s and %s* in it and in %s/",
		path, ErrNotCheckpoint, manifestName, modelName, indexName, lastName, stepPrefix, storeName)
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
	step, ok, err := s.Last()
	if err != nil {
		return "", err
	}
	if ok {
		if path, ok, err := s.find(step); ok || err != nil {
			return path, err
		}
	}
	c, _, err := s.Newest()
	if err != nil {
		return "", err
	}
	return c.Dir(), c.Close()
}
