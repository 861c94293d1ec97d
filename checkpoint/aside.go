package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// The suffixes of the names to which SetAside renames a checkpoint.
const (
	DamagedSuffix    = "damaged"
	SupersededSuffix = "superseded"
)

// SetAside renames the checkpoint of a step, durably, to a name that no reader takes for a
// checkpoint, such as step-00000100.damaged, and returns its new path. A crash may have left a
// second checkpoint of the step, which the first was to replace. With SupersededSuffix both are
// renamed; with DamagedSuffix only the first, and a second call renames the other. If there is no
// checkpoint of the step the error is ErrNone.
func (s *Store) SetAside(step int, suffix string) (path string, err error) {
	if suffix != DamagedSuffix && suffix != SupersededSuffix {
		return "", fmt.Errorf("rename a checkpoint to …%q: the suffix must be %s or %s", suffix, DamagedSuffix, SupersededSuffix)
	}
	entries, err := s.find(step)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", fmt.Errorf("%s: %w of step %d to rename", s.path("."), ErrNone, step)
	}
	if suffix == DamagedSuffix {
		entries = entries[:1]
	}
	for _, e := range slices.Backward(entries) { // the first one's path is returned
		if path, err = s.setAside(e.name, stepName(step), suffix); err != nil {
			return "", fmt.Errorf("rename %s: %w", s.path(e.name), err)
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

// Clean removes unfinished folders and pointers that a crash has left. An old checkpoint whose
// replacement is missing gets its name back.
func (s *Store) Clean() error {
	items, err := s.readDir()
	if err != nil {
		return err
	}
	for _, item := range items {
		if strings.HasPrefix(item.Name(), tmpPrefix) {
			if err := s.fsys.RemoveAll(s.name(item.Name())); err != nil {
				return fmt.Errorf("remove unfinished files of a crash: %w", err)
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
			return fmt.Errorf("recover %s after a crash: %w", s.path(e.name), err)
		}
	}
	return nil
}

// settle completes the replacement of a step's checkpoint. It removes the old checkpoint if the new
// one is proven to be whole. It restores the old one's name if the new one is missing or damaged.
// If neither is known to be whole, it renames the old one with SetAside's suffix.
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

// whole reads every byte of a checkpoint and returns what is wrong with it.
func (s *Store) whole(e entry) error {
	c, err := s.open(e)
	if err != nil {
		return err
	}
	return c.Close()
}
