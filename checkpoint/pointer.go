package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	to, err := s.readTarget(bestName)
	if err == nil && !to.ok || err != nil && !errors.Is(err, errNoPointer) {
		return err
	}
	if err == nil {
		if there, err := s.has(to); err != nil || there {
			return err
		}
	}
	if err := s.fsys.RemoveAll(s.name(bestName)); err != nil {
		return fmt.Errorf("remove %s, which points to no checkpoint: %w", s.path(bestName), err)
	}
	return s.fsys.SyncDir(s.dir)
}

// has reports whether a pointer's target exists.
func (s *Store) has(to target) (bool, error) {
	if to.weights {
		names, err := s.bestWeights()
		return slices.Contains(names, bestWeightsName(to.step)), err
	}
	entries, err := s.find(to.step)
	return len(entries) > 0, err
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

// target is what a pointer points to.
type target struct {
	step    int
	ok      bool // there is a pointer
	weights bool // it points to a folder of SaveBest
}

func (s *Store) readPointer(pointer string) (step int, ok bool, err error) {
	to, err := s.readTarget(pointer)
	return to.step, to.ok, err
}

func (s *Store) readTarget(pointer string) (to target, err error) {
	name, err := s.fsys.Readlink(s.name(pointer))
	if errors.Is(err, fs.ErrNotExist) {
		return to, nil
	}
	if err != nil { // probably not a link
		text, fileErr := folder.ReadFile(s.fsys, s.name(pointer), pointerBytesMax)
		if fileErr != nil {
			if errors.Is(err, syscall.EINVAL) { // not a link
				err = nil
			}
			return to, fmt.Errorf("%w: it should point to a checkpoint: make it readable, or remove it",
				errors.Join(folder.Unreadable(err), fileErr))
		}
		name = strings.TrimSuffix(string(text), "\n")
	}
	if to.step, to.ok = parseStep(name); to.ok {
		return to, nil
	}
	if step, ok := parseBest(name); ok && pointer == bestName {
		return target{step, true, true}, nil
	}
	return target{}, fmt.Errorf("%s points to %s, %w: remove it", s.path(pointer), strictjson.Quote(name), errNoPointer)
}
