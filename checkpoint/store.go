package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Store is the folder checkpoints/ of a run's output folder. One process at a
// time changes it (LockDir), from one goroutine; any number may read.
type Store struct {
	fsys FS
	dir  string
}

// OpenStore returns the store of an output folder. Neither has to exist yet:
// Save makes them.
func OpenStore(fsys FS, out string) (*Store, error) {
	s := &Store{fsys: fsys, dir: filepath.Join(out, storeName)}
	if _, err := s.list(); err != nil {
		return nil, err
	}
	return s, nil
}

// entry is a checkpoint's folder in the store.
type entry struct {
	step     int
	name     string
	replaced bool // it stands under its second name while a new one takes its place
}

// list returns the checkpoints, newest first, of one step the replaced one last.
// A store that doesn't exist has none.
func (s *Store) list() ([]entry, error) {
	items, err := s.readDir()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, item := range items {
		plain, replaced := strings.CutSuffix(item.Name(), replacedSuffix)
		if step, ok := parseStep(plain); ok && item.IsDir() {
			entries = append(entries, entry{step: step, name: item.Name(), replaced: replaced})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(a.name, b.name))
	})
	return entries, nil
}

func (s *Store) readDir() ([]fs.DirEntry, error) {
	items, err := s.fsys.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the checkpoints: %w", err)
	}
	return items, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// Steps returns the steps that there is a checkpoint of, ascending, whole or not.
func (s *Store) Steps() ([]int, error) {
	entries, err := s.list()
	if err != nil {
		return nil, err
	}
	return steps(entries), nil
}

func steps(entries []entry) []int {
	var all []int
	for _, e := range entries {
		all = append(all, e.step)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Newest opens the newest intact checkpoint, every byte verified. damaged has an
// error for each newer one that was passed over, newest first. Without any
// checkpoint the error is ErrNone, without an intact one ErrAllDamaged.
func (s *Store) Newest() (c *Checkpoint, damaged []error, err error) {
	entries, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	if len(entries) == 0 {
		return nil, nil, fmt.Errorf("%s: %w", s.dir, ErrNone)
	}
	for _, e := range entries {
		c, err := s.open(e)
		if err == nil {
			return c, damaged, nil
		}
		damaged = append(damaged, err)
	}
	return nil, damaged, fmt.Errorf("%s: %w: %w", s.dir, ErrAllDamaged, errors.Join(damaged...))
}

// open opens a checkpoint of the store, which, unlike a foreign one, has to be
// verified and to be what its name says.
func (s *Store) open(e entry) (*Checkpoint, error) {
	path := s.path(e.name)
	c, err := Open(path)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Manifest == nil:
		err = fmt.Errorf("%s: %w: %s is missing", path, ErrDamaged, manifestName)
	case c.Manifest.Step != e.step:
		err = fmt.Errorf("%s: %w: it is of step %d", path, ErrDamaged, c.Manifest.Step)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Prune removes all checkpoints but the newest keep and those that `best` and
// `last` point to, and returns the steps removed. keep 0 removes none.
func (s *Store) Prune(keep int) (removed []int, err error) {
	if keep < 0 {
		return nil, fmt.Errorf("keep %d checkpoints: 0 keeps all, 1 the newest", keep)
	}
	if keep == 0 {
		return nil, nil
	}
	entries, err := s.list()
	if err != nil {
		return nil, err
	}
	all := steps(entries)
	kept := make(map[int]bool)
	for _, step := range all[max(0, len(all)-keep):] {
		kept[step] = true
	}
	// A pointer that can't be read may point to any of them: nothing is removed.
	for _, pointer := range []string{lastName, bestName} {
		step, ok, err := s.readPointer(pointer)
		if err != nil {
			return nil, err
		}
		if ok {
			kept[step] = true
		}
	}
	var names []string
	for _, e := range entries {
		if !kept[e.step] {
			names = append(names, e.name)
			removed = append(removed, e.step)
		}
	}
	if err := s.discard(names...); err != nil {
		return nil, fmt.Errorf("removing old checkpoints: %w", err)
	}
	slices.Sort(removed)
	return slices.Compact(removed), nil
}

// discard removes folders of the store. They lose their names first, durably:
// what is half removed must not look like a checkpoint.
func (s *Store) discard(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		tmp := s.path(tmpPrefix + name)
		if err := s.fsys.RemoveAll(tmp); err != nil {
			return err
		}
		if err := s.fsys.Rename(s.path(name), tmp); err != nil {
			return err
		}
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.fsys.RemoveAll(s.path(tmpPrefix + name)); err != nil {
			return err
		}
	}
	return nil
}

// Clean removes what a crash has left: unfinished folders and pointers. An old
// checkpoint whose replacement didn't arrive gets its name back.
func (s *Store) Clean() error {
	items, err := s.readDir()
	if err != nil {
		return err
	}
	for _, item := range items {
		if strings.HasPrefix(item.Name(), tmpPrefix) {
			if err := s.fsys.RemoveAll(s.path(item.Name())); err != nil {
				return fmt.Errorf("removing what a crash has left: %w", err)
			}
		}
	}
	entries, err := s.list()
	if err != nil {
		return err
	}
	for i, e := range entries {
		if !e.replaced {
			continue
		}
		if i > 0 && entries[i-1].step == e.step {
			err = s.discard(e.name)
		} else {
			err = s.fsys.Rename(s.path(e.name), s.path(stepName(e.step)))
		}
		if err != nil {
			return fmt.Errorf("putting %s in order after a crash: %w", s.path(e.name), err)
		}
	}
	return nil
}
