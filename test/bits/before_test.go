package bits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestSaysBeforehand: a start says that it computes the reference model, or the teacher, before it does it, and of how many records. An
// event repeats it. A run that resumes says nothing.
func TestSaysBeforehand(t *testing.T) {
	for _, tt := range []struct {
		sets       []string
		file, want string
	}{
		{preferenceSets(t, []string{"model.family=gpt2"}, []string{"preference.loss=dpo"}), rundir.ReferenceFile,
			"computing the log-probabilities of 120 answers (60 records) under the reference model"},
		{distillSets(t), rundir.TeacherFile, "computing the teacher's 8 most likely tokens in 54 records"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		start := func(steps string) (said []string, events []troupe.Event) {
			t.Helper()
			sets := append(slices.Clone(tt.sets), "run.eval_every=0", steps)
			run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, sets...), troupe.Options{Preparing: func(text string) {
				if _, err := os.Stat(filepath.Join(out, tt.file)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is there already (%v) when the start says: %s", tt.file, err, text)
				}
				said = append(said, text)
			}})
			if err != nil {
				t.Fatal(err)
			}
			_, events = testrun.Finish(t, run)
			return said, events
		}
		said, events := start("run.steps=1")
		if len(said) != 1 || !strings.HasPrefix(said[0], tt.want) || warnings(events, said[0]) != 1 {
			t.Errorf("it says %q, want %q", said, tt.want)
		}
		if said, _ := start("run.steps=2"); len(said) > 0 {
			t.Errorf("a run that resumes says %q", said)
		}
	}
}

// TestKeptBefore: a check leaves out the pass whose result the folder has, but not for the result of the other kind.
func TestKeptBefore(t *testing.T) {
	teacher := filepath.Join(t.TempDir(), "teacher")
	testrun.Train(t, teacher, "model.hidden=128", "model.heads=2", "run.steps=1", "run.eval_every=0")
	out := t.TempDir()
	cfg := testrun.NewConfig(t, out, "data.format=documents", "data.train="+testrun.PairsOf(t, 8), "model.context=32", "batch.microbatch=2",
		"batch.sequences=2", "distill.from="+teacher, "model.hidden=8", "model.heads=2", "pipeline.stages=1")
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Before()
	if err != nil {
		t.Fatal(err)
	}
	testrun.SetFreeMemory(t, b.Bytes-1)
	for _, has := range []struct {
		name string
		fits bool
	}{{"", false}, {rundir.ReferenceFile, false}, {rundir.TeacherFile, true}} {
		if has.name != "" {
			testrun.Write(t, filepath.Join(out, has.name), "{}")
		}
		if err := troupe.Check(cfg); has.fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "distill.from: not enough memory") {
			t.Errorf("with %q in the folder: %v", has.name, err)
		}
	}
}

// TestBeforeBesideRanks: the memory of a rank does not limit the pass, which is none: it is refused only where this machine has less.
func TestBeforeBesideRanks(t *testing.T) {
	sets := []string{"data.format=documents", "data.train=" + testrun.PairsOf(t, 8), "model.context=32", "batch.microbatch=2",
		"preference.loss=dpo", "model.layers=8", "model.hidden=64", "pipeline.stages=8", "batch.sequences=2"}
	sized := func(more ...string) *plan.Plan {
		t.Helper()
		p, err := plan.Resolve(testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), append(more, sets...)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := sized()
	ranks, err := p.MemoryBytes()
	b, err2 := p.Before()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	limit := slices.Max(ranks) + 1<<16
	if limit >= b.Bytes {
		t.Fatalf("ranks need %d bytes, which is not less than the %d of the whole model", ranks, b.Bytes)
	}
	p = sized(fmt.Sprintf("device.memory_gib=%g", float64(limit)/(1<<30)))
	testrun.SetFreeMemory(t, b.Bytes)
	if err := p.CheckBefore(); err != nil {
		t.Error(err)
	}
	testrun.SetFreeMemory(t, b.Bytes-1)
	want := "this machine has " + words.Bytes(b.Bytes-1) + " free"
	if err := p.CheckBefore(); !errors.Is(err, plan.ErrMemory) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

// TestBefore: the forecast of the pass before the first step counts the weights of the reference model, or of the teacher, and a
// microbatch. A machine with less is refused, with the key and what to do.
func TestBefore(t *testing.T) {
	teacher := filepath.Join(t.TempDir(), "teacher")
	testrun.Train(t, teacher, "model.hidden=64", "run.steps=1", "run.eval_every=0")
	free := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = free })
	for _, tt := range []struct {
		name string
		sets []string
		what string // "": there is no pass
		want []string
	}{
		{"dpo", []string{"preference.loss=dpo"}, "the reference model",
			[]string{"preference.loss: ", "computes the reference model on its CPU", "use orpo or simpo"}},
		{"orpo", []string{"preference.loss=orpo"}, "", nil},
		{"distill", []string{"distill.from=" + teacher, "model.hidden=16", "model.heads=2"}, "the teacher",
			[]string{"distill.from: ", "computes the teacher on its CPU", "a smaller teacher"}},
		{"tokens", nil, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			device.HostFreeBytes = free
			sets := []string{"data.format=documents", "data.train=" + testrun.PairsOf(t, 8), "model.context=32", "batch.microbatch=2"}
			p, err := plan.Resolve(testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), append(sets, tt.sets...)...), nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.Before()
			if err != nil || (b == nil) != (tt.what == "") {
				t.Fatalf("%+v, %v", b, err)
			}
			if b == nil {
				device.HostFreeBytes = func() int64 { return 1 }
				if err := p.CheckBefore(); err != nil {
					t.Error(err)
				}
				return
			}
			most, err := p.MemoryBytes()
			if err != nil {
				t.Fatal(err)
			}
			weights := 4 * p.Model().Config.Parameters()
			if tt.name == "distill" { // the teacher is wider
				weights *= 4
			}
			if b.What != tt.what || b.Bytes < weights || tt.name == "dpo" && b.Bytes > most[0] {
				t.Errorf("%+v; the weights have %d bytes, training needs %d", b, weights, most)
			}
			for _, has := range []int64{b.Bytes, b.Bytes - 1} {
				device.HostFreeBytes = func() int64 { return has }
				err := p.CheckBefore()
				if fits := has == b.Bytes; fits != (err == nil) {
					t.Errorf("%d bytes where %d are needed: %v", has, b.Bytes, err)
				}
				for _, part := range tt.want {
					if err != nil && (!errors.Is(err, plan.ErrMemory) || !strings.Contains(err.Error(), part)) {
						t.Errorf("%v does not say %q", err, part)
					}
				}
			}
		})
	}
}
