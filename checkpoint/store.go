package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Store is the folder checkpoints/ of a run's output folder. Only one process at a time may change
// it (LockDir), from one goroutine; any number may read it.
type Store struct {
	fsys FS
	dir  string // its name in fsys
}

// OpenStore returns the store of the output folder out in fsys; "." is fsys itself. The folders
// need not exist yet: Save creates them.
func OpenStore(fsys FS, out string) (*Store, error) {
	s := &Store{fsys: fsys, dir: path.Join(out, StoreName)}
	if _, err := s.list(); err != nil {
		return nil, err
	}
	return s, nil
}

// entry is something with a checkpoint's name in the store.
type entry struct {
	step     int
	name     string
	replaced bool // it has the name for replaced checkpoints while a new one takes its place
	folder   bool // false: Save has not made it
}

// list returns the checkpoints, newest first; of two with the same step the replaced one last. A
// store that doesn't exist has none.
func (s *Store) list() ([]entry, error) {
	items, err := s.readDir()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, item := range items {
		plain, replaced := strings.CutSuffix(item.Name(), replacedSuffix)
		if step, ok := parseStep(plain); ok {
			entries = append(entries, entry{step: step, name: item.Name(), replaced: replaced, folder: item.IsDir()})
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
		return nil, fmt.Errorf("list the checkpoints: %w", folder.Unreadable(err))
	}
	return items, nil
}

// find returns all entries of a step.
func (s *Store) find(step int) ([]entry, error) {
	entries, err := s.list()
	return slices.DeleteFunc(entries, func(e entry) bool { return e.step != step }), err
}

// name returns the name of a store's entry in its file system, path its full path.
func (s *Store) name(entry string) string { return path.Join(s.dir, entry) }
func (s *Store) path(entry string) string { return s.fsys.Path(s.name(entry)) }

// Path returns the path of a step's checkpoint, which need not exist.
func (s *Store) Path(step int) string { return s.path(stepName(step)) }

// Steps returns the steps with a checkpoint, ascending, whether whole or not.
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

// Damaged is a checkpoint that is proven to be damaged.
type Damaged struct {
	Step int
	Path string
	Err  error
}

// Newest opens the newest intact checkpoint, with every byte verified. damaged lists the skipped
// checkpoints, newest first: only checkpoints with ErrDamaged are skipped. A newer checkpoint that
// is incomplete, unreadable or too new is an error, since it may be good. So is a missing
// checkpoint to which `last` points. Both errors are a *StepError. Without any checkpoint the error
// is ErrNone, without an intact one ErrAllDamaged.
func (s *Store) Newest() (c *Checkpoint, damaged []Damaged, err error) {
	entries, err := s.list()
	if err != nil {
		return nil, nil, err
	}
	last, ok, err := s.Last()
	if err != nil && !errors.Is(err, errNoPointer) {
		return nil, nil, err
	}
	if ok && (len(entries) == 0 || entries[0].step < last) {
		return nil, nil, &StepError{last, faultf(Missing, "%s points to step %d, but neither its checkpoint nor a later one exists: restore it",
			s.path(lastName), last)}
	}
	return s.first(entries)
}

// At opens the checkpoint of one step, with every byte verified. The error is ErrNone if it
// does not exist.
func (s *Store) At(step int) (*Checkpoint, error) {
	entries, err := s.find(step)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		all, err := s.Steps()
		if err != nil {
			return nil, err
		}
		if best, err := s.BestSteps(); err == nil && slices.Contains(best, step) {
			return nil, fmt.Errorf("%s: %w of step %d: %s has weights, but no state of the optimizer, so no run can resume from it; start a new run from it with model.from",
				s.path("."), ErrNone, step, s.path(bestWeightsName(step)))
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: %w of step %d: the folder has no checkpoints", s.path("."), ErrNone, step)
		}
		return nil, fmt.Errorf("%s: %w of step %d: there are checkpoints of steps %s; choose one of these",
			s.path("."), ErrNone, step, words.Numbers(all))
	}
	c, _, err := s.first(entries)
	return c, err
}

// first opens the first intact one of several checkpoints.
func (s *Store) first(entries []entry) (c *Checkpoint, damaged []Damaged, err error) {
	if len(entries) == 0 {
		return nil, nil, fmt.Errorf("%s: %w", s.path("."), ErrNone)
	}
	var errs []error
	for _, e := range entries {
		c, err := s.open(e)
		if err == nil {
			return c, damaged, nil
		}
		if state := stateOf(err); state != StateDamaged {
			return nil, damaged, &StepError{e.step, fmt.Errorf("%w; Troupe does not skip it, because it is not proven to be damaged: %s", err,
				state.advice())}
		}
		damaged = append(damaged, Damaged{e.step, s.path(e.name), err})
		errs = append(errs, err)
	}
	return nil, damaged, fmt.Errorf("%s: %w: %w", s.path("."), ErrAllDamaged, errors.Join(errs...))
}

// open opens a checkpoint of the store. Unlike another program's folder, it must be verified and
// match its name.
func (s *Store) open(e entry) (*Checkpoint, error) {
	sub, err := s.fsys.Sub(s.name(e.name))
	if err != nil {
		return nil, asFault(err)
	}
	c, err := open(sub, true)
	if err != nil {
		return nil, err
	}
	if c.Manifest.Step != e.step {
		return nil, errors.Join(misplaced(s.path(e.name), c.Manifest.Step), c.Close())
	}
	return c, nil
}

// misplaced returns the error for a checkpoint under another checkpoint's name. It may be whole.
func misplaced(path string, step int) error {
	return faultf(Unreadable, "%s holds the checkpoint of step %d: rename it to %s", path, step, stepName(step))
}

// Verify reads every byte of a step's checkpoint; see the function Verify. The error is ErrNone
// if it does not exist, or not any more.
func (s *Store) Verify(step int) (*Report, error) {
	return s.report(step, func(d *directory) (*Report, error) { return d.verify(true) })
}

// report examines a step's checkpoint. The report includes errors of opening it.
func (s *Store) report(step int, look func(d *directory) (*Report, error)) (*Report, error) {
	entries, err := s.find(step)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		report := s.reportOn(entries[0], look)
		if report.Intact() {
			return report, nil
		}
		// A run may have removed it while it was read.
		if entries, err = s.find(step); err != nil || len(entries) > 0 {
			return report, err
		}
	}
	return nil, fmt.Errorf("%s: %w of step %d", s.path("."), ErrNone, step)
}

func (s *Store) reportOn(e entry, look func(d *directory) (*Report, error)) (report *Report) {
	sub, err := s.fsys.Sub(s.name(e.name))
	if err == nil {
		d := newDirectory(sub)
		report, err = look(d)
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		return &Report{Dir: s.path(e.name), Problems: []Problem{problem(e.name, err)}}
	}
	if m := report.Manifest; m != nil && m.Step != e.step {
		report.Problems = append(report.Problems, problem(manifestName, misplaced(s.path(e.name), m.Step)))
	}
	return report
}

// Prune removes all checkpoints except the newest keep and those to which `best` and `last` point,
// and returns the removed steps. With keep 0 it removes none.
func (s *Store) Prune(keep int) (removed []int, err error) {
	if keep < 0 {
		return nil, fmt.Errorf("cannot keep %d checkpoints: 0 keeps all, 1 the newest", keep)
	}
	if keep == 0 {
		return nil, nil
	}
	entries, err := s.list()
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return !e.folder })
	all := steps(entries)
	kept := make(map[int]bool)
	for _, step := range all[max(0, len(all)-keep):] {
		kept[step] = true
	}
	// An unreadable pointer may point to any of them, so nothing is removed.
	for _, pointer := range []string{lastName, bestName} {
		to, err := s.readTarget(pointer)
		if err != nil {
			return nil, err
		}
		if to.ok && !to.weights {
			kept[to.step] = true
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
		return nil, fmt.Errorf("remove old checkpoints: %w", err)
	}
	slices.Sort(removed)
	return slices.Compact(removed), nil
}

// discard removes folders of the store. It first renames them, durably, since a half-removed folder
// must not look like a checkpoint.
func (s *Store) discard(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		tmp := s.name(tmpPrefix + name)
		if err := s.fsys.RemoveAll(tmp); err != nil {
			return err
		}
		if err := s.fsys.Rename(s.name(name), tmp); err != nil {
			return err
		}
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.fsys.RemoveAll(s.name(tmpPrefix + name)); err != nil {
			return err
		}
	}
	return nil
}
