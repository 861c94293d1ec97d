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

// The pointers of a store: relative symbolic links to a checkpoint or, on systems without links,
// files that contain its name.
const (
	lastName = "last"
	bestName = "best"
)

// errNoPointer is for a link, or a file in its place, that was not made by a run.
var errNoPointer = errors.New("which is not the name of a checkpoint")

// SetLast makes `last` point to the checkpoint of a step.
func (s *Store) SetLast(step int) error { return s.setPointer(lastName, step) }

// SetBest makes `best` point to the checkpoint of a step.
func (s *Store) SetBest(step int) error { return s.setPointer(bestName, step) }

// Last returns the step that `last` points to; ok is false if there is no such pointer.
func (s *Store) Last() (step int, ok bool, err error) { return s.readPointer(lastName) }

// Best returns the step that `best` points to; ok is false if there is no such pointer.
func (s *Store) Best() (step int, ok bool, err error) { return s.readPointer(bestName) }

// DropBest removes `best` if it does not point to an existing checkpoint: otherwise a later
// checkpoint of that step would be taken for the best one.
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
		return fmt.Errorf("remove %s, which points to no checkpoint: %w", s.path(bestName), err)
	}
	return s.fsys.SyncDir(s.dir)
}

// CheckPointers checks that SetLast and SetBest can replace whatever is at `last` and `best`.
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
		return fmt.Errorf("point %s to step %d: %w", s.path(pointer), step, AsNoSpace(err))
	}
	return nil
}

// replacePointer makes the new pointer beside the old one and renames it into place.
func (s *Store) replacePointer(pointer, target string) error {
	tmp := s.name(tmpPrefix + pointer)
	if err := s.fsys.RemoveAll(tmp); err != nil {
		return err
	}
	if err := s.fsys.Symlink(target, tmp); err != nil {
		// Systems refuse links in various ways. A file serves as well; if the disk is at fault, it
		// fails, too.
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
	if err != nil { // probably not a link
		text, fileErr := folder.ReadFile(s.fsys, s.name(pointer), pointerBytesMax)
		if fileErr != nil {
			if errors.Is(err, syscall.EINVAL) { // not a link
				err = nil
			}
			return 0, false, fmt.Errorf("%w: it should point to a checkpoint: make it readable, or remove it",
				errors.Join(folder.Unreadable(err), fileErr))
		}
		target = strings.TrimSuffix(string(text), "\n")
	}
	step, ok = parseStep(target)
	if !ok {
		return 0, false, fmt.Errorf("%s points to %s, %w: remove it", s.path(pointer), strictjson.Quote(target), errNoPointer)
	}
	return step, true, nil
}
