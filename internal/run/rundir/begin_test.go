package rundir_test

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// TestMetricsAreCut to the step that a run goes on from, whatever it had done since; the
// other lines stay as they are, byte for byte.
func TestMetricsAreCut(t *testing.T) {
	whole := trained(t)
	lines := strings.SplitAfter(read(t, filepath.Join(whole, "metrics.jsonl")), "\n")
	val := func(step int) *float64 { return record(step, true).ValLoss }
	for _, tt := range []struct {
		name string
		text string
		left string
		val  *float64
	}{
		{"nothing is beyond", strings.Join(lines[:4], ""), strings.Join(lines[:4], ""), val(3)},
		{"two are", strings.Join(lines[:6], ""), strings.Join(lines[:4], ""), val(3)},
		{"a validation is", strings.Join(lines[:7], ""), strings.Join(lines[:4], ""), val(3)},
		{"half a line is", strings.Join(lines[:5], "") + `{"step": 5, "lo`, strings.Join(lines[:4], ""), val(3)},
		{"half a line, within", strings.Join(lines[:2], "") + `{"step": 2`, strings.Join(lines[:2], ""), val(0)},
		{"a key of a later version", strings.Join(lines[:3], "") + `{"step":3,"colour":"red"}` + "\n", strings.Join(lines[:3], "") +
			`{"step":3,"colour":"red"}` + "\n", val(0)},
		{"no validation", lines[1], lines[1], nil},
		{"none at all", "", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := copyOf(t, whole)
			must(t, os.RemoveAll(stepDir(out, 6)))
			must(t, os.Remove(filepath.Join(out, "checkpoints", "last")))
			write(t, filepath.Join(out, "metrics.jsonl"), tt.text)
			l := goesOn(t, newConfig(t, out), 0, 3)
			if got := read(t, filepath.Join(out, "metrics.jsonl")); got != tt.left {
				t.Errorf("there is\n%swant\n%s", got, tt.left)
			}
			if got := l.begun.LastValLoss; (got == nil) != (tt.val == nil) || got != nil && *got != *tt.val {
				t.Errorf("the last validation gave %v", got)
			}
		})
	}
	t.Run("what is no line", func(t *testing.T) {
		out := copyOf(t, whole)
		write(t, filepath.Join(out, "metrics.jsonl"), "{\n"+strings.Join(lines, ""))
		flip(t, filepath.Join(stepDir(out, 6), "trainer.json")) // it would be set aside
		before := tree(t, out)
		l, err := begin(newConfig(t, out), 0)
		if err == nil || l.dir.Begun || !strings.Contains(err.Error(), filepath.Join(out, "metrics.jsonl")+": row 1") {
			t.Errorf("error %v", err)
		}
		same(t, before, tree(t, out))
	})
}

// TestConfigFollows: the folder's configuration is that of the last start, and the first
// file of a new run.
func TestConfigFollows(t *testing.T) {
	out := trained(t)
	cfg := newConfig(t, out, "run.steps=9", "run.keep=2")
	live(t, cfg, 0)
	if got := read(t, filepath.Join(out, "config.toml")); got != string(cfg.TOML()) {
		t.Errorf("it is\n%s", got)
	}
	if got := read(t, filepath.Join(stepDir(out, 9), "config.toml")); got != string(cfg.TOML()) {
		t.Errorf("the checkpoint's is\n%s", got)
	}
	noneLeft(t, out)
}

// TestLeftovers of a crash go, and nothing else does.
func TestLeftovers(t *testing.T) {
	out := trained(t)
	before := tree(t, out)
	for _, name := range []string{".tmp-config.toml", ".tmp-metrics.jsonl", ".tmp-metrics.jsonl.superseded", "checkpoints/.tmp-last",
		"checkpoints/.tmp-step-00000009/manifest.json"} {
		write(t, filepath.Join(out, name), "half of")
	}
	goesOn(t, newConfig(t, out), 0, 6)
	same(t, before, tree(t, out))

	for _, name := range []string{"notes.txt", ".tmp-thesis.txt", "config.toml.old", "checkpoints/notes.txt", "checkpoints/step-6/x",
		"checkpoints/step-00000003.superseded/x"} {
		write(t, filepath.Join(out, name), "mine")
	}
	before = tree(t, out)
	goesOn(t, newConfig(t, out), 0, 6)
	same(t, before, tree(t, out))
}

// TestLinksAreReplaced: a link in the place of what a start writes by a temporary name, or
// of a pointer, is not written through.
func TestLinksAreReplaced(t *testing.T) {
	for _, name := range []string{".tmp-config.toml", ".tmp-metrics.jsonl", "checkpoints/last", "checkpoints/best", "checkpoints/.tmp-last",
		"checkpoints/.tmp-step-00000009"} {
		for kind, target := range map[string]string{"to a file": "outside/thesis.txt", "to a folder": "outside", "to nothing": "outside/new"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				out := trained(t)
				outside := filepath.Join(filepath.Dir(out), "outside")
				write(t, filepath.Join(outside, "thesis.txt"), "all of it")
				link, to := filepath.Join(out, name), filepath.Join(filepath.Dir(out), target)
				must(t, os.RemoveAll(link))
				must(t, os.Symlink(to, link))
				before := tree(t, outside)
				live(t, newConfig(t, out, "run.steps=9"), 0)
				same(t, before, tree(t, outside))
				if now, err := os.Readlink(link); err == nil && now == to {
					t.Errorf("%s still points to %s", link, now)
				}
			})
		}
	}
}

// TestBest: `best` points to what the checkpoint that a run goes on from calls the best,
// and to nothing where that isn't there: another one of its step would be taken for it.
func TestBest(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sets   []string
		change func(t *testing.T, out string)
		from   int
		want   string
	}{
		{"as it was", nil, func(*testing.T, string) {}, 0, "step-00000006"},
		{"a crash came before it", nil, func(t *testing.T, out string) { must(t, os.Remove(filepath.Join(out, "checkpoints", "best"))) }, 0,
			"step-00000006"},
		{"back to an older best", nil, func(*testing.T, string) {}, 3, "step-00000003"},
		{"back to before the first validation", []string{"run.checkpoint_every=2", "run.eval_every=4"}, func(*testing.T, string) {}, 2, ""},
		{"the best was removed", []string{"run.checkpoint_every=2", "run.eval_every=4"},
			func(t *testing.T, out string) { must(t, os.RemoveAll(stepDir(out, 4))) }, 0, ""},
		{"it points to no checkpoint's name", []string{"run.eval_every=0"}, func(t *testing.T, out string) {
			must(t, os.Symlink("../../elsewhere", filepath.Join(out, "checkpoints", "best")))
		}, 0, ""},
		{"no validation, and an older one's best", []string{"run.eval_every=0"}, func(t *testing.T, out string) {
			must(t, os.Symlink("step-00000003", filepath.Join(out, "checkpoints", "best")))
		}, 0, "step-00000003"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t, tt.sets...)
			tt.change(t, out)
			l, err := begin(newConfig(t, out, tt.sets...), tt.from)
			must(t, err)
			must(t, l.end())
			if got := pointer(t, out, "best"); got != tt.want {
				t.Errorf("it points to %q, want %q", got, tt.want)
			}
			if got, want := pointer(t, out, "last"), filepath.Base(l.back.Checkpoint.Dir()); got != want {
				t.Errorf("last points to %q, want %q", got, want)
			}
		})
	}
}

// failing fails at some operations.
type failing struct {
	checkpoint.FS
	create, rename string // the names, as path.Match takes them
	err            error
}

func (f failing) fails(pattern, name string) error {
	if ok, _ := path.Match(pattern, name); ok {
		return &os.PathError{Op: "write", Path: name, Err: f.err}
	}
	return nil
}

func (f failing) Create(name string) (checkpoint.File, error) {
	if err := f.fails(f.create, name); err != nil {
		return nil, err
	}
	return f.FS.Create(name)
}

func (f failing) Rename(from, to string) error {
	if err := f.fails(f.rename, from); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// TestStartCutShort: a start that fails while it sets things aside or writes its files
// leaves no copies behind, tells what it has set aside, and the next one goes on.
func TestStartCutShort(t *testing.T) {
	aside := []string{"it was renamed to", ".damaged", "training resumes from step 3"}
	for _, tt := range []struct {
		name      string
		fs        failing
		unchanged bool // but for `last`, which points to what it was to go on from
		want      []string
	}{
		{"the copy of the metrics", failing{create: ".tmp-metrics.jsonl.superseded", err: syscall.ENOSPC}, true,
			[]string{"keep a copy of ", "metrics.jsonl"}},
		{"the cut of the metrics", failing{create: ".tmp-metrics.jsonl", err: syscall.ENOSPC}, false, append(aside, "metrics.jsonl.superseded")},
		{"the configuration", failing{create: ".tmp-config.toml", err: syscall.ENOSPC}, false, append(aside, "write ", "config.toml")},
		{"a checkpoint that may not be renamed", failing{rename: "checkpoints/step-*", err: syscall.EACCES}, true,
			[]string{"rename ", "step-00000006: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t)
			flip(t, filepath.Join(stepDir(out, 6), "trainer.json"))
			damaged, before := tree(t, stepDir(out, 6)), tree(t, out)
			through(t, func(under checkpoint.FS) checkpoint.FS {
				tt.fs.FS = under
				return tt.fs
			})
			l, err := begin(newConfig(t, out), 0)
			if !errors.Is(err, tt.fs.err) || !l.dir.Begun {
				t.Errorf("error %v, and it has begun: %v", err, l.dir.Begun)
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q, want %q in it", err, text)
				}
			}
			if tt.unchanged {
				must(t, os.Remove(filepath.Join(out, "checkpoints", "last")))
				must(t, os.Symlink("step-00000006", filepath.Join(out, "checkpoints", "last")))
				same(t, before, tree(t, out))
			}
			through(t, func(under checkpoint.FS) checkpoint.FS { return under })
			if l := live(t, newConfig(t, out), 0); l.back == nil || l.back.Checkpoint.Step() != 3 {
				t.Errorf("the next one goes on from %+v", l.back)
			}
			same(t, damaged, tree(t, stepDir(out, 6)+".damaged"))
			if all := steps(t, out); !slices.Equal(all, upTo(6)) {
				t.Errorf("the metrics have the steps %v", all)
			}
			noneLeft(t, out)
		})
	}
}

// TestNewRunCutShort: a start of a new run that can't write its configuration leaves a
// folder that the next one takes.
func TestNewRunCutShort(t *testing.T) {
	out := filepath.Join(memoryDir(t), "out")
	through(t, func(under checkpoint.FS) checkpoint.FS {
		return failing{FS: under, create: ".tmp-config.toml", err: syscall.ENOSPC}
	})
	if _, err := begin(newConfig(t, out), 0); !errors.Is(err, checkpoint.ErrNoSpace) {
		t.Errorf("error %v", err)
	}
	through(t, func(under checkpoint.FS) checkpoint.FS { return under })
	live(t, newConfig(t, out), 0)
	if all := steps(t, out); !slices.Equal(all, upTo(6)) {
		t.Errorf("the metrics have the steps %v", all)
	}
}

// TestPointersFirst: a start whose checkpoint was removed since it was opened fails at
// `last`, before anything is set aside.
func TestPointersFirst(t *testing.T) {
	out := trained(t)
	l, err := begin(newConfig(t, out), 0)
	must(t, err)
	must(t, os.RemoveAll(stepDir(out, 6)))
	before := tree(t, out)
	b, err := l.dir.Begin(l.cfg.TOML(), trainstate.State{Step: 6}, true)
	if !errors.Is(err, checkpoint.ErrNone) || b.Metrics != nil {
		t.Errorf("error %v", err)
	}
	same(t, before, tree(t, out))
	must(t, l.end())
}
