package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// bestPrefix is that of the folders of SaveBest: best-00000100.
const bestPrefix = "best-"

func bestWeightsName(step int) string { return fmt.Sprintf("%s%08d", bestPrefix, step) }

// parseBest reads a name made by bestWeightsName, and only such a name.
func parseBest(name string) (step int, ok bool) {
	step, err := strconv.Atoi(strings.TrimPrefix(name, bestPrefix))
	return step, err == nil && step >= 0 && name == bestWeightsName(step)
}

// SaveBest writes the weights of a step with the best validation loss to best-…, makes `best` point to them, and returns
// their folder. It is a checkpoint with a manifest, but without the state of an optimizer, so no run resumes from it. Until
// the pointer has moved, the older best weights stay. PruneBest removes them.
func (s *Store) SaveBest(ctx context.Context, c Content) (dir string, err error) {
	if len(c.Optimizer) > 0 || c.Others != nil {
		return "", fmt.Errorf("the best weights of step %d come with the state of an optimizer, or with tensors of other processes", c.Step)
	}
	files, err := c.plan()
	if err != nil {
		return "", fmt.Errorf("cannot write the best weights, of step %d: %w", c.Step, err)
	}
	name := bestWeightsName(c.Step)
	tmp := tmpPrefix + name + "-new"
	if err = s.write(ctx, tmp, c, files, func() error { return s.installBest(tmp, name) }); err == nil {
		err = s.replacePointer(bestName, name)
	}
	if err != nil {
		return "", fmt.Errorf("write the best weights, of step %d (%d bytes), to %s: %w", c.Step, spaceFor(files), s.path("."), AsNoSpace(err))
	}
	return s.path(name), nil
}

// installBest gives a filled folder its name. Older weights of the same step come from before a crash: the run has computed
// the step again.
func (s *Store) installBest(tmp, name string) error {
	old, err := s.bestWeights()
	if err != nil {
		return err
	}
	if slices.Contains(old, name) {
		if err := s.discard(name); err != nil {
			return err
		}
	}
	if err := s.fsys.Rename(s.name(tmp), s.name(name)); err != nil {
		return err
	}
	return s.fsys.SyncDir(s.dir)
}

// bestWeights returns the names of the folders of SaveBest.
func (s *Store) bestWeights() (names []string, err error) {
	items, err := s.readDir()
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if _, ok := parseBest(item.Name()); ok && item.IsDir() {
			names = append(names, item.Name())
		}
	}
	return names, nil
}

// BestSteps returns the steps whose weights SaveBest has written, ascending.
func (s *Store) BestSteps() (steps []int, err error) {
	names, err := s.bestWeights()
	for _, name := range names {
		step, _ := parseBest(name) // bestWeights has checked it
		steps = append(steps, step)
	}
	slices.Sort(steps)
	return steps, err
}

// BestWeights returns the step of the weights that `best` points to; ok is false if it points to a checkpoint, or if there is
// no such pointer.
func (s *Store) BestWeights() (step int, ok bool, err error) {
	to, err := s.readTarget(bestName)
	return to.step, to.weights, err
}

// PointBest makes `best` point to the best weights of a step or, without them, to its checkpoint. If there is neither, the
// error is ErrNone.
func (s *Store) PointBest(step int) error {
	names, err := s.bestWeights()
	if err != nil {
		return err
	}
	if name := bestWeightsName(step); slices.Contains(names, name) {
		return s.replacePointer(bestName, name)
	}
	return s.SetBest(step)
}

// PruneBest removes the folders of SaveBest except those of some steps and the one that `best` points to. A run keeps the
// weights that its newest checkpoint knows as the best: it may have to resume from there.
func (s *Store) PruneBest(keep ...int) error {
	names, err := s.bestWeights()
	if err != nil || len(names) == 0 {
		return err
	}
	to, err := s.readTarget(bestName) // an unreadable pointer may point to any of them
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		step, _ := parseBest(name)
		return slices.Contains(keep, step) || to.weights && to.step == step
	})
	if err := s.discard(names...); err != nil {
		return fmt.Errorf("remove the weights of older best validations: %w", err)
	}
	return nil
}

// SetBestAside renames the best weights of steps after a step to ….superseded, because the run goes back to that step. It
// returns their new paths.
func (s *Store) SetBestAside(after int) (paths []string, err error) {
	steps, err := s.BestSteps()
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if step <= after {
			continue
		}
		name := bestWeightsName(step)
		path, err := s.setAside(name, name, SupersededSuffix)
		if err != nil {
			return paths, fmt.Errorf("rename %s: %w", s.path(name), err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// LookBest is Look for the best weights of a step.
func (s *Store) LookBest(step int, file string) (*Look, error) {
	look := &Look{}
	report, err := s.reportBest(step, func(d *directory) (*Report, error) { return look.at(d, file) })
	look.Report = report
	return look, err
}

// VerifyBest is Verify for the best weights of a step.
func (s *Store) VerifyBest(step int) (*Report, error) {
	return s.reportBest(step, func(d *directory) (*Report, error) { return d.verify(true) })
}

func (s *Store) reportBest(step int, look func(d *directory) (*Report, error)) (*Report, error) {
	report := s.reportOn(entry{step: step, name: bestWeightsName(step), folder: true}, look)
	if report.Intact() {
		return report, nil
	}
	// A run may have removed it while it was read.
	steps, err := s.BestSteps()
	if err == nil && !slices.Contains(steps, step) {
		err = fmt.Errorf("%s: %w of step %d", s.path("."), ErrNone, step)
	}
	return report, err
}
