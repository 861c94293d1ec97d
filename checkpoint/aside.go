package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Why a checkpoint is set aside: the end of its new name.
const (
	DamagedSuffix    = "damaged"
	SupersededSuffix = "superseded"
)

// SetAside renames the checkpoint of a step, durably, to a name that no reader takes
// for a checkpoint, such as step-00000100.damaged, and returns its new path. Where a
// crash has left a second one of the step, which the first was to replace, it is
// superseded together with the first, but damaged by itself: a second call is about
// it. That there is none is ErrNone.
func (s *Store) SetAside(step int, suffix string) (path string, err error) {
	if suffix != DamagedSuffix && suffix != SupersededSuffix {
		return "", fmt.Errorf("setting a checkpoint aside as %q: it is %s or %s", suffix, DamagedSuffix, SupersededSuffix)
	}
	entries, err := s.find(step)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", fmt.Errorf("%s: %w of step %d to set aside", s.path("."), ErrNone, step)
	}
	if suffix == DamagedSuffix {
		entries = entries[:1]
	}
	for _, e := range slices.Backward(entries) { // the first one's path is returned
		if path, err = s.setAside(e.name, stepName(step), suffix); err != nil {
			return "", fmt.Errorf("setting %s aside: %w", s.path(e.name), err)
		}
	}
	return path, nil
}

func (s *Store) setAside(name, as, suffix string) (path string, err error) {
	to, err := folder.AsideName(s.fsys, s.name(as), suffix)
	if err != nil {
		return "", err
	}
	if err := s.fsys.Rename(s.name(name), to); err != nil {
		return "", err
	}
	return s.fsys.Path(to), s.fsys.SyncDir(s.dir)
}

// Clean removes what a crash has left unfinished, folders and pointers. An old
// checkpoint whose replacement didn't arrive gets its name back.
func (s *Store) Clean() error {
	items, err := s.readDir()
	if err != nil {
		return err
	}
	for _, item := range items {
		if strings.HasPrefix(item.Name(), tmpPrefix) {
			if err := s.fsys.RemoveAll(s.name(item.Name())); err != nil {
				return fmt.Errorf("removing what a crash has left: %w", err)
			}
		}
	}
	entries, err := s.list()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.replaced {
			continue
		}
		if err := s.settle(e.step); err != nil {
			return fmt.Errorf("putting %s in order after a crash: %w", s.path(e.name), err)
		}
	}
	return nil
}

// settle ends the replacement of a step's checkpoint. The old one is removed if the
// new one is proven to be whole, and takes its name back where there is no new one, or
// a damaged one. Where neither is known to be whole, it is set aside.
func (s *Store) settle(step int) error {
	entries, err := s.find(step)
	if err != nil {
		return err
	}
	var plain, replaced *entry
	for i := range entries {
		if entries[i].replaced {
			replaced = &entries[i]
		} else {
			plain = &entries[i]
		}
	}
	if replaced == nil {
		return nil
	}
	if plain != nil {
		newErr := s.whole(*plain)
		switch {
		case newErr == nil:
			return s.retire(*replaced)
		case stateOf(newErr) != StateDamaged || s.whole(*replaced) != nil:
			_, err := s.setAside(replaced.name, plain.name, SupersededSuffix)
			return err
		}
		if _, err := s.setAside(plain.name, plain.name, DamagedSuffix); err != nil {
			return err
		}
	}
	return s.fsys.Rename(s.name(replaced.name), s.name(stepName(step)))
}

// whole reads a checkpoint, every byte, and says what is wrong with it.
func (s *Store) whole(e entry) error {
	c, err := s.open(e)
	if err != nil {
		return err
	}
	return c.Close()
}
