package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/troupe-ml/troupe/checkpoint/internal/strictjson"
)

// The pointers of a store: relative symbolic links to a checkpoint or, where the
// system has no links, files that hold its name.
const (
	lastName = "last"
	bestName = "best"
)

// SetLast makes `last` point to the checkpoint of a step.
func (s *Store) SetLast(step int) error { return s.setPointer(lastName, step) }

// SetBest makes `best` point to the checkpoint of a step.
func (s *Store) SetBest(step int) error { return s.setPointer(bestName, step) }

// Last returns the step that `last` points to; ok is false when there is no
// such pointer.
func (s *Store) Last() (step int, ok bool, err error) { return s.readPointer(lastName) }

// Best returns the step that `best` points to; ok is false when there is no
// such pointer.
func (s *Store) Best() (step int, ok bool, err error) { return s.readPointer(bestName) }

func (s *Store) setPointer(pointer string, step int) error {
	if _, ok, err := s.find(step); err != nil {
		return err
	} else if !ok {
		return fmt.Errorf("%s cannot point to step %d: %w of it in %s", pointer, step, ErrNone, s.dir)
	}
	if err := s.replacePointer(pointer, stepName(step)); err != nil {
		return fmt.Errorf("pointing %s to step %d: %w", s.path(pointer), step, asNoSpace(err))
	}
	return nil
}

// replacePointer makes the new pointer beside the old one and renames it over it.
func (s *Store) replacePointer(pointer, target string) error {
	tmp := s.path(tmpPrefix + pointer)
	if err := removeIfThere(s.fsys, tmp); err != nil {
		return err
	}
	if err := s.fsys.Symlink(target, tmp); err != nil {
		// Systems refuse links in many ways; a file serves as well, and if the
		// disk is at fault it fails too.
		if fileErr := WriteFileAtomic(s.fsys, s.path(pointer), []byte(target+"\n")); fileErr != nil {
			return errors.Join(err, fileErr)
		}
		return nil
	}
	if err := s.fsys.Rename(tmp, s.path(pointer)); err != nil {
		return errors.Join(err, removeIfThere(s.fsys, tmp))
	}
	return s.fsys.SyncDir(s.dir)
}

func (s *Store) readPointer(pointer string) (step int, ok bool, err error) {
	path := s.path(pointer)
	target, err := s.fsys.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil { // most likely it is no link
		var fileErr error
		if target, fileErr = s.readPointerFile(path); fileErr != nil {
			return 0, false, errors.Join(err, fileErr)
		}
	}
	step, ok = parseStep(target)
	if !ok {
		return 0, false, fmt.Errorf("%s points to %s, which is no checkpoint's name; remove it", path, strictjson.Quote(target))
	}
	return step, true, nil
}

func (s *Store) readPointerFile(path string) (target string, err error) {
	f, err := s.fsys.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, pointerBytesMax))
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	return string(text), err
}

// find returns the folder of a step's checkpoint.
func (s *Store) find(step int) (path string, ok bool, err error) {
	entries, err := s.list()
	for _, e := range entries {
		if e.step == step {
			return s.path(e.name), true, nil
		}
	}
	return "", false, err
}
