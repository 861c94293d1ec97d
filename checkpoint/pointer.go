package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// The pointers of a store: relative symbolic links to a checkpoint or, where the
// system has no links, files that hold its name.
const (
	lastName = "last"
	bestName = "best"
)

// errNoPointer is about a link, or a file in its place, that a run did not make.
var errNoPointer = errors.New("which is no checkpoint's name")

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

// DropBest removes `best` where the checkpoint that it points to is not there, since
// another one of that step would be taken for the best, or where it points to none.
func (s *Store) DropBest() error {
	step, ok, err := s.Best()
	if err == nil && !ok || err != nil && !errors.Is(err, errNoPointer) {
		return err
	}
	if err == nil {
		if entries, err := s.find(step); err != nil || len(entries) > 0 {
			return err
		}
	}
	if err := s.fsys.RemoveAll(s.name(bestName)); err != nil {
		return fmt.Errorf("removing %s, which points to no checkpoint: %w", s.path(bestName), err)
	}
	return s.fsys.SyncDir(s.dir)
}

// CheckPointers makes sure that `last` and `best` are nothing that SetLast and SetBest
// can't replace.
func (s *Store) CheckPointers() error {
	for _, pointer := range []string{lastName, bestName} {
		if _, _, err := s.readPointer(pointer); err != nil && !errors.Is(err, errNoPointer) {
			return err
		}
	}
	return nil
}

func (s *Store) setPointer(pointer string, step int) error {
	if entries, err := s.find(step); err != nil {
		return err
	} else if len(entries) == 0 {
		return fmt.Errorf("%s cannot point to step %d: %w of it in %s", pointer, step, ErrNone, s.path("."))
	}
	if err := s.replacePointer(pointer, stepName(step)); err != nil {
		return fmt.Errorf("pointing %s to step %d: %w", s.path(pointer), step, AsNoSpace(err))
	}
	return nil
}

// replacePointer makes the new pointer beside the old one and renames it over it.
func (s *Store) replacePointer(pointer, target string) error {
	tmp := s.name(tmpPrefix + pointer)
	if err := s.fsys.RemoveAll(tmp); err != nil {
		return err
	}
	if err := s.fsys.Symlink(target, tmp); err != nil {
		// Systems refuse links in many ways; a file serves as well, and if the
		// disk is at fault it fails too.
		if fileErr := WriteFileAtomic(s.fsys, s.name(pointer), []byte(target+"\n")); fileErr != nil {
			return errors.Join(err, fileErr)
		}
		return nil
	}
	if err := s.fsys.Rename(tmp, s.name(pointer)); err != nil {
		return errors.Join(err, s.fsys.RemoveAll(tmp))
	}
	return s.fsys.SyncDir(s.dir)
}

func (s *Store) readPointer(pointer string) (step int, ok bool, err error) {
	target, err := s.fsys.Readlink(s.name(pointer))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil { // most likely it is no link
		text, fileErr := folder.ReadFile(s.fsys, s.name(pointer), pointerBytesMax)
		if fileErr != nil {
			if errors.Is(err, syscall.EINVAL) { // it is no link
				err = nil
			}
			return 0, false, fmt.Errorf("%w: it is to point to a checkpoint; make it readable, or remove it",
				errors.Join(folder.Unreadable(err), fileErr))
		}
		target = strings.TrimSuffix(string(text), "\n")
	}
	step, ok = parseStep(target)
	if !ok {
		return 0, false, fmt.Errorf("%s points to %s, %w; remove it", s.path(pointer), strictjson.Quote(target), errNoPointer)
	}
	return step, true, nil
}
