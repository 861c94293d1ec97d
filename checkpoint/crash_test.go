package checkpoint_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
)

// state is what Newest has to find: small(step, tag).
type state struct {
	step int
	tag  string
}

// A scenario is a piece of a run's life. After a crash anywhere in it, the
// newest checkpoint is one of `may`, in their order; after its end, the last.
type scenario struct {
	name  string
	setup func(t *testing.T, fsys checkpoint.FS, s *checkpoint.Store)
	run   func(fsys checkpoint.FS, s *checkpoint.Store) error
	may   []state
}

var scenarios = []scenario{
	{
		name:  "first",
		setup: func(*testing.T, checkpoint.FS, *checkpoint.Store) {},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error {
			if _, err := s.Save(context.Background(), small(100, "")); err != nil {
				return err
			}
			return s.SetLast(100)
		},
		may: []state{{-1, ""}, {100, ""}},
	},
	{
		name:  "others write too",
		setup: func(t *testing.T, _ checkpoint.FS, s *checkpoint.Store) { save(t, s, small(100, "")) },
		run: func(fsys checkpoint.FS, s *checkpoint.Store) error {
			_, err := s.Save(context.Background(), shared(small(200, ""), "attempt", fsys, "run"))
			return err
		},
		may: []state{{100, ""}, {200, ""}},
	},
	{
		name: "second, and prune",
		setup: func(t *testing.T, _ checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, ""))
			save(t, s, small(200, ""))
			save(t, s, small(300, ""))
			must(t, s.SetLast(300))
			must(t, s.SetBest(100))
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error {
			if _, err := s.Save(context.Background(), small(400, "")); err != nil {
				return err
			}
			if err := s.SetLast(400); err != nil {
				return err
			}
			_, err := s.Prune(1)
			return err
		},
		may: []state{{300, ""}, {400, ""}},
	},
	{
		name: "best weights after others, and prune",
		setup: func(t *testing.T, _ checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, ""))
			must(t, s.SetLast(100))
			saveBest(t, s, 90)
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error {
			for _, step := range []int{110, 120, 120} { // the last one was computed again
				if _, err := s.SaveBest(context.Background(), weights(step)); err != nil {
					return err
				}
				if err := s.PruneBest(90); err != nil {
					return err
				}
			}
			return nil
		},
		may: []state{{100, ""}, {100, ""}},
	},
	{
		name: "replace",
		setup: func(t *testing.T, _ checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, "old"))
			must(t, s.SetLast(100))
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error {
			_, err := s.Save(context.Background(), small(100, "newer"))
			return err
		},
		may: []state{{100, "old"}, {100, "newer"}},
	},
	{
		name: "set aside",
		setup: func(t *testing.T, _ checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, ""))
			save(t, s, small(200, ""))
			must(t, s.SetLast(200))
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error {
			if err := s.SetLast(100); err != nil {
				return err
			}
			_, err := s.SetAside(200, checkpoint.SupersededSuffix)
			return err
		},
		may: []state{{200, ""}, {100, ""}},
	},
	{
		name: "clean while the replacement is missing",
		setup: func(t *testing.T, fsys checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, "old"))
			must(t, fsys.Rename("run/checkpoints/step-00000100", "run/checkpoints/step-00000100.replaced"))
			must(t, fsys.Mkdir("run/checkpoints/.tmp-step-00000100"))
			must(t, fsys.SyncDir("run/checkpoints"))
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error { return s.Clean() },
		may: []state{{100, "old"}, {100, "old"}},
	},
	{
		name: "clean after the replacement",
		setup: func(t *testing.T, fsys checkpoint.FS, s *checkpoint.Store) {
			save(t, s, small(100, "old"))
			must(t, fsys.Rename("run/checkpoints/step-00000100", "run/checkpoints/step-00000100.replaced"))
			save(t, s, small(100, "newer")) // discards the old one
			save(t, s, small(200, ""))
			must(t, fsys.Rename("run/checkpoints/step-00000200", "run/checkpoints/step-00000100.replaced"))
			must(t, fsys.SyncDir("run/checkpoints"))
		},
		run: func(_ checkpoint.FS, s *checkpoint.Store) error { return s.Clean() },
		may: []state{{100, "newer"}, {100, "newer"}},
	},
}

// memoryDir is a temporary folder, in memory where Linux has such a place: these
// tests make thousands of files.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "checkpoint-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// start sets a scenario up on a file system that crashes.
func (sc scenario) start(t *testing.T) (fsys *crashfs.FS, s *checkpoint.Store, out string) {
	t.Helper()
	base := memoryDir(t)
	fsys, err := crashfs.New(base)
	must(t, err)
	out = filepath.Join(base, "run")
	s = openStore(t, fsys, "run")
	sc.setup(t, fsys, s)
	return fsys, s, out
}

// ops counts the operations of a scenario that nothing disturbs.
func (sc scenario) ops(t *testing.T) int {
	t.Helper()
	fsys, s, out := sc.start(t)
	before := fsys.Ops()
	must(t, sc.run(fsys, s))
	checkAfter(t, out, sc.may[len(sc.may)-1:])
	return fsys.Ops() - before
}

// A crash at every operation, seen both as after kill -9 and as after several
// ways in which the power can fail.
func TestCrashAtEveryOperation(t *testing.T) {
	const powerFailures = 3
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			for k := range sc.ops(t) {
				fsys, s, out := sc.start(t)
				fsys.CrashAt(k)
				if err := sc.run(fsys, s); !errors.Is(err, crashfs.ErrCrashed) {
					t.Fatalf("operation %d: no crash: %v", k, err)
				}
				for seed := range uint64(powerFailures) {
					base := memoryDir(t)
					must(t, fsys.Crash(base, seed))
					checkAfter(t, filepath.Join(base, "run"), sc.may)
				}
				checkAfter(t, out, sc.may)
				s = storeIn(t, out)
				save(t, s, small(500, ""))
				if got := newest(t, s); got.step != 500 {
					t.Errorf("step 500 has been saved, the newest checkpoint is %+v", got)
				}
				if t.Failed() {
					t.Fatalf("after a crash at operation %d", k)
				}
			}
		})
	}
}

// What a caller was told is done has to survive the power failure right after.
func TestPowerFailureAfterReturn(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			fsys, s, _ := sc.start(t)
			must(t, sc.run(fsys, s))
			last, _, err := s.Last()
			must(t, err)
			for seed := range uint64(16) {
				base := memoryDir(t)
				must(t, fsys.Crash(base, seed))
				checkAfter(t, filepath.Join(base, "run"), sc.may[len(sc.may)-1:])
				if got, _, err := storeIn(t, filepath.Join(base, "run")).Last(); got != last || err != nil {
					t.Errorf("last is %d, %v, it was set to %d", got, err, last)
				}
			}
		})
	}
}

// Every operation fails once, in turn for lack of space and for a bad disk. Unlike
// in a crash, the program goes on and tidies up.
func TestFailureOfEveryOperation(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			for k := range sc.ops(t) {
				fault := []error{syscall.ENOSPC, syscall.EIO}[k%2]
				fsys, s, out := sc.start(t)
				fsys.FailAt(k, fault)
				err := sc.run(fsys, s)
				may := sc.may
				if err == nil {
					may = may[len(may)-1:]
				} else if !errors.Is(err, fault) {
					t.Errorf("the error hides its cause: %v", err)
				}
				checkAfter(t, out, may)
				if t.Failed() {
					t.Fatalf("after a failure of operation %d: %v", k, err)
				}
			}
		})
	}
}

// checkAfter looks at an output folder as the next process would: one of the
// possible checkpoints is there, none is damaged, and the pointers hold.
func checkAfter(t *testing.T, out string, may []state) {
	t.Helper()
	s := storeIn(t, out)
	before := newest(t, s)
	if !slices.Contains(may, before) {
		t.Errorf("the newest checkpoint is %+v, want one of %+v", before, may)
	}
	checkAll(t, filepath.Join(out, "checkpoints"))
	must(t, s.Clean())
	if after := newest(t, s); after != before {
		t.Errorf("the newest checkpoint was %+v, after Clean it is %+v", before, after)
	}
	steps, err := s.Steps()
	must(t, err)
	best, err := s.BestSteps()
	must(t, err)
	if step, ok, err := s.BestWeights(); ok || err != nil {
		// Power may fail between the removal of old weights of the same step and the new ones.
		if err != nil || !slices.Contains(best, step) && !slices.Contains(best, 90) {
			t.Errorf("best points to the weights of step %d, %v; there are those of %d", step, err, best)
		}
		steps = append(steps, step)
	}
	for name, pointer := range map[string]func() (int, bool, error){"last": s.Last, "best": s.Best} {
		step, ok, err := pointer()
		if err != nil || ok && !slices.Contains(steps, step) {
			t.Errorf("%s: %d, %v; the steps are %d", name, step, err, steps)
		}
	}
	if before.step >= 0 {
		for _, name := range listing(t, filepath.Join(out, "checkpoints")) {
			if strings.HasPrefix(name, ".tmp-") || strings.HasSuffix(name, ".replaced") {
				t.Errorf("Clean left %s", name)
			}
		}
	}
}

// checkAll makes sure that whatever has a checkpoint's name is whole, also what
// Newest did not look at.
func checkAll(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, name := range listing(t, dir) {
		if !strings.HasPrefix(name, "step-") && !strings.HasPrefix(name, "best-") {
			continue
		}
		report, err := checkpoint.Verify(filepath.Join(dir, name))
		must(t, err)
		if !report.Intact() {
			t.Error(report)
		}
	}
}

// newest is what Newest finds, which must not have to pass over damaged ones.
func newest(t *testing.T, s *checkpoint.Store) state {
	t.Helper()
	c, damaged, err := s.Newest()
	if errors.Is(err, checkpoint.ErrNone) {
		return state{-1, ""}
	}
	must(t, err)
	if len(damaged) > 0 {
		t.Errorf("damaged: %v", damaged)
	}
	found := state{c.Step(), ""}
	trainer, err := c.File("trainer.json")
	must(t, err)
	for _, tag := range []string{"old", "newer"} {
		if strings.Contains(string(trainer), tag) {
			found.tag = tag
		}
	}
	checkContent(t, c, small(found.step, found.tag))
	must(t, c.Close())
	return found
}
