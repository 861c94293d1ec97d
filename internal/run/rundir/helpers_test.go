package rundir_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallRun has checkpoints of the steps 3 and 6, and validations before the first step
// and at both.
const smallRun = `
[run]
steps = 6
eval_every = 3
checkpoint_every = 3
keep = 0

[data]
train = ["text.txt"]
`

// model is what the checkpoints say that they are of.
var model = stages.Config{Family: stages.GPT2, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 2, FFN: 32, Context: 8, Vocab: 256, Tie: true}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newConfig is smallRun with an output folder and keys set as on the command line.
func newConfig(t testing.TB, out string, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("small.toml", []byte(smallRun), append([]string{"run.out=" + out}, sets...), nil)
	must(t, err)
	return cfg
}

// life is one start of a run, up to its end: all that the root package and the actors do
// with its folder, and no training.
type life struct {
	cfg   *config.Config
	dir   *rundir.Dir
	back  *rundir.Resumed // nil: from scratch
	state trainstate.State
	begun rundir.Beginning
}

// begin starts a run. With an error it has ended again.
func begin(cfg *config.Config, fromStep int) (l *life, err error) {
	l = &life{cfg: cfg, state: trainstate.State{FormatVersion: trainstate.Version}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.end())
		}
	}()
	if l.dir, err = rundir.Open(cfg, false); err != nil {
		return l, err
	}
	if l.back, err = l.dir.Resume(fromStep); err != nil {
		return l, err
	}
	if l.back != nil {
		l.state = l.back.State
		if d := l.dir.Decision(l.state.Step); d != nil {
			l.state.Decisions = append(l.state.Decisions, *d)
		}
	}
	l.begun, err = l.dir.Begin(cfg.TOML(), l.state, l.back != nil)
	return l, err
}

// train writes what a run does up to its last step: each validation is better than those
// before it.
func (l *life) train() error {
	save, err := rundir.NewSaver(l.dir.Store, l.cfg.Run.Keep, l.cfg.TOML(), model, tokenizer.Bytes{}, rundir.Kept{})
	if err != nil {
		return err
	}
	save.SyncMetrics = l.begun.Metrics.Sync
	if l.state.Step == 0 {
		if err := l.begun.Metrics.Write(record(0, true)); err != nil {
			return err
		}
	}
	for l.state.Step < int64(l.cfg.Run.Steps) {
		l.state.Step++
		step := int(l.state.Step)
		r := record(step, due(step, l.cfg.Run.EvalEvery))
		if r.ValLoss != nil {
			l.state.BestStep, l.state.BestValLoss = l.state.Step, r.ValLoss
		}
		if err := l.begun.Metrics.Write(r); err != nil {
			return err
		}
		if !due(step, l.cfg.Run.CheckpointEvery) {
			continue
		}
		if _, err := save.Write(context.Background(), l.state, saved(step), r.ValLoss != nil); err != nil {
			return err
		}
	}
	return nil
}

func due(step, every int) bool { return every > 0 && step%every == 0 }

// record is the line of a step; its losses are a function of the step.
func record(step int, validated bool) telemetry.Record {
	loss := 1 / float64(1+step)
	r := telemetry.Record{Step: step}
	if step > 0 {
		r.Loss = &loss
	}
	if validated {
		r.ValLoss = &loss
	}
	return r
}

// saved is a model of one weight, a function of the step, with its optimizer's state.
func saved(step int) []stages.Saved {
	values := []float32{float32(step), 2, 3}
	return []stages.Saved{{Name: "m.w", Part: "m", Shape: []int{3}, Data: values}, {Name: "w", Shape: []int{3}, Data: values}}
}

// end closes what begin has opened.
func (l *life) end() error {
	var errs []error
	if l.begun.Metrics != nil {
		errs = append(errs, l.begun.Metrics.Close())
	}
	if l.back != nil {
		errs = append(errs, l.back.Checkpoint.Close())
	}
	if l.dir != nil {
		errs = append(errs, l.dir.Close())
	}
	return errors.Join(errs...)
}

// warnings are those of a start.
func (l *life) warnings() []string { return append(slices.Clone(l.dir.Warnings), l.begun.Warnings...) }

// memoryDir is a temporary folder, in memory where Linux has such a place: these tests
// sync thousands of files.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rundir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// trained is the folder of a run that has ended.
func trained(t testing.TB, sets ...string) (out string) {
	t.Helper()
	out = filepath.Join(memoryDir(t), "out")
	live(t, newConfig(t, out, sets...), 0)
	return out
}

// live starts a run, which has to begin, and writes all its steps.
func live(t testing.TB, cfg *config.Config, fromStep int) *life {
	t.Helper()
	l, err := begin(cfg, fromStep)
	must(t, err)
	must(t, errors.Join(l.train(), l.end()))
	return l
}

// goesOn starts a run, which has to go on from a step, and ends it there.
func goesOn(t testing.TB, cfg *config.Config, fromStep, step int) *life {
	t.Helper()
	l, err := begin(cfg, fromStep)
	must(t, err)
	must(t, l.end())
	if l.back == nil || l.state.Step != int64(step) || l.back.Checkpoint.Step() != step {
		t.Errorf("it goes on from step %d, want %d", l.state.Step, step)
	}
	return l
}

// refused is refusal for those who need no more of the error.
func refused(t testing.TB, cfg *config.Config, fromStep int, is error, want ...string) {
	t.Helper()
	_ = refusal(t, cfg, fromStep, is, want...) // it has been checked there
}

// refusal starts a run that must not begin, and must change nothing: the error is is, and
// has all of want in its text.
func refusal(t testing.TB, cfg *config.Config, fromStep int, is error, want ...string) error {
	t.Helper()
	before := tree(t, cfg.Run.Out)
	l, err := begin(cfg, fromStep)
	if err == nil {
		t.Fatalf("it began, from step %d, %v", l.state.Step, l.end())
	}
	if l.dir != nil && l.dir.Begun {
		t.Error("it has begun")
	}
	if !errors.Is(err, is) || !errors.Is(is, checkpoint.ErrAllDamaged) && errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("error %v is not %v", err, is)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q, want %q in it", err, text)
		}
	}
	same(t, before, tree(t, cfg.Run.Out))
	return err
}

// same compares two trees.
func same(t testing.TB, want, got string) {
	t.Helper()
	if got != want {
		t.Errorf("the folder had\n%sit has\n%s", want, got)
	}
}

// through lets runs see their folder through another file system.
func through(t testing.TB, view func(under checkpoint.FS) checkpoint.FS) {
	old := rundir.View
	t.Cleanup(func() { rundir.View = old })
	rundir.View = view
}

func stepDir(out string, step int) string {
	return filepath.Join(out, "checkpoints", fmt.Sprintf("step-%08d", step))
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// flip changes a bit in the middle of a file.
func flip(t testing.TB, path string) {
	t.Helper()
	b := []byte(read(t, path))
	b[len(b)/2] ^= 1
	write(t, path, string(b))
}

// copyOf copies a folder with its links.
func copyOf(t testing.TB, from string) (to string) {
	t.Helper()
	to = filepath.Join(memoryDir(t), "copy")
	must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// list is the sorted names in a folder.
func list(t testing.TB, elem ...string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(elem...))
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// tree describes everything in a folder, byte for byte, but the content of the lock, which
// says who had it last. What isn't there has nothing in it.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err) && path == dir:
			return nil
		case err != nil || path == dir && d.IsDir():
			return err
		}
		content := ""
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case d.Type().IsRegular() && d.Name() != checkpoint.LockName:
			content = read(t, path)
			if len(content) > 100 {
				content = fmt.Sprintf("%d bytes, %x", len(content), sha256.Sum256([]byte(content)))
			}
		}
		fmt.Fprintf(&b, "%s %v %q\n", strings.TrimPrefix(path, dir), d.Type(), content)
		return err
	}))
	return b.String()
}

// steps are those of the lines in a run's metrics.
func steps(t testing.TB, out string) (all []int) {
	t.Helper()
	lines, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
	must(t, err)
	for _, r := range lines {
		all = append(all, r.Step)
	}
	return all
}

// upTo counts from 0 to n.
func upTo(n int) (all []int) {
	for i := range n + 1 {
		all = append(all, i)
	}
	return all
}

// pointer is where last or best of a run points; "": nowhere.
func pointer(t testing.TB, out, name string) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join(out, "checkpoints", name))
	if !os.IsNotExist(err) {
		must(t, err)
	}
	return target
}

// noneLeft makes sure that nothing unfinished is left.
func noneLeft(t testing.TB, out string) {
	t.Helper()
	for _, pattern := range []string{".tmp-*", "checkpoints/.tmp-*", "checkpoints/*.replaced"} {
		if left, err := filepath.Glob(filepath.Join(out, pattern)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
