package rundir_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
)

// A way is a start that goes on without the newest checkpoint.
type way struct {
	name     string
	fromStep int
	at       int // the step that it goes on from
	suffix   string
	prepare  func(t *testing.T, out string)
}

var ways = []way{
	{"by name", 2, 2, "superseded", func(*testing.T, string) {}},
	{"past a damaged one", 0, 4, "damaged", func(t *testing.T, out string) { flip(t, filepath.Join(stepDir(out, 6), "model.safetensors")) }},
}

// cut starts a run whose file system fails at an operation; reached tells whether the
// start has so many.
func (w way) cut(t *testing.T, out string, k int, fault error) (fsys *crashfs.FS, l *life, reached bool, err error) {
	t.Helper()
	fsys, err = crashfs.New(out)
	must(t, err)
	t.Cleanup(func() { must(t, fsys.Close()) })
	fsys.FailAt(k, fault)
	through(t, func(checkpoint.FS) checkpoint.FS { return fsys })
	l, err = begin(newConfig(t, out, everyTwo...), w.fromStep)
	if err == nil {
		_ = l.end() // the crash may be at the closing
	}
	through(t, func(under checkpoint.FS) checkpoint.FS { return under })
	return fsys, l, fsys.Ops() > k, err
}

// again gives the same command once more: it goes on from where the start that was cut
// short was to, or as if that had not been, and nothing is lost.
func (w way) again(t *testing.T, out, newest, metrics string) {
	t.Helper()
	cfg := newConfig(t, out, everyTwo...)
	l := live(t, cfg, w.fromStep)
	if l.back == nil || l.back.Checkpoint.Step() != w.at {
		t.Fatalf("it goes on from %+v", l.back)
	}
	kept := func(dir, prefix string, same func(path string) bool) bool {
		return slices.ContainsFunc(list(t, dir), func(name string) bool {
			return strings.HasPrefix(name, prefix) && same(filepath.Join(dir, name))
		})
	}
	if !kept(filepath.Join(out, "checkpoints"), "step-00000006."+w.suffix, func(path string) bool { return tree(t, path) == newest }) {
		t.Errorf("the newest checkpoint is lost: there are %v", list(t, out, "checkpoints"))
	}
	if !kept(out, "metrics.jsonl.superseded", func(path string) bool { return read(t, path) == metrics }) {
		t.Errorf("the metrics are lost: there are %v", list(t, out))
	}
	if all := steps(t, out); !slices.Equal(all, upTo(6)) {
		t.Errorf("the metrics have the steps %v", all)
	}
	d := l.state.Decisions
	if named := len(d) == 1 && d[0].Kind == trainstate.FromStep && d[0].Step == 2; named != (w.fromStep > 0) {
		t.Errorf("recorded: %+v", d)
	}
	noneLeft(t, out)
	before := tree(t, filepath.Join(out, "checkpoints"))
	goesOn(t, cfg, w.fromStep, 6)
	same(t, before, tree(t, filepath.Join(out, "checkpoints")))
}

// TestStartCrash cuts a start short at every operation, by a kill and by the failure of
// the power.
func TestStartCrash(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			whole := trained(t, everyTwo...)
			w.prepare(t, whole)
			newest, metrics := tree(t, stepDir(whole, 6)), read(t, filepath.Join(whole, "metrics.jsonl"))
			for k := 0; ; k++ {
				out := copyOf(t, whole)
				fsys, _, reached, err := w.cut(t, out, k, crashfs.ErrCrashed)
				if !reached {
					must(t, err)
					break
				}
				if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
					t.Fatalf("a crash at operation %d: %v", k, err)
				}
				w.again(t, out, newest, metrics)
				left := memoryDir(t)
				must(t, fsys.Crash(left, uint64(k)))
				w.again(t, left, newest, metrics)
				if t.Failed() {
					t.Fatalf("after a crash at operation %d", k)
				}
			}
		})
	}
}

// TestStartFails at every operation, for want of space and for a bad disk in turn: a start
// that says that it has not begun has changed nothing, and any can be made again.
func TestStartFails(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			whole := trained(t, everyTwo...)
			w.prepare(t, whole)
			newest, metrics := tree(t, stepDir(whole, 6)), read(t, filepath.Join(whole, "metrics.jsonl"))
			unbegun, begun := 0, 0
			for k := 0; ; k++ {
				fault := []error{syscall.ENOSPC, syscall.EIO}[k%2]
				out := copyOf(t, whole)
				before := tree(t, out)
				_, l, reached, err := w.cut(t, out, k, fault)
				if !reached {
					must(t, err)
					break
				}
				switch {
				case err == nil:
				case !errors.Is(err, fault):
					t.Errorf("the error hides its cause: %v", err)
				case l.dir == nil || !l.dir.Begun:
					unbegun++
					same(t, before, tree(t, out))
				default:
					begun++
				}
				w.again(t, out, newest, metrics)
				if t.Failed() {
					t.Fatalf("after a failure of operation %d: %v", k, err)
				}
			}
			if unbegun < 10 || begun < 10 {
				t.Errorf("%d operations failed before the beginning, %d after it", unbegun, begun)
			}
		})
	}
}
