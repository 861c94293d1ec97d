package rundir_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// newSaver writes into a new folder.
func newSaver(t *testing.T, keep int, tok tokenizer.Tokenizer) (s *rundir.Saver, out string) {
	t.Helper()
	out = memoryDir(t)
	fsys, err := checkpoint.OpenFS(out)
	must(t, err)
	t.Cleanup(func() { must(t, fsys.Close()) })
	store, err := checkpoint.OpenStore(fsys, ".")
	must(t, err)
	s, err = rundir.NewSaver(store, keep, []byte("# a run's"), model, tok, rundir.Kept{})
	must(t, err)
	s.SyncMetrics = func() error { return nil }
	return s, out
}

// TestSaveInOrder: a checkpoint's files do not depend on the order in which the stages
// give their parts.
func TestSaveInOrder(t *testing.T) {
	part := func(name, part string, index int) stages.Saved {
		return stages.Saved{Name: name, Part: part, Index: index, Shape: []int{1}, Data: []float32{float32(index)}}
	}
	parts := []stages.Saved{part("a", "", 0), part("m.a", "m", 0), part("v.a", "v", 0), part("b", "", 1), part("m.b", "m", 1),
		part("v.b", "v", 1)}
	backwards := slices.Clone(parts)
	slices.Reverse(backwards)
	var trees []string
	for _, order := range [][]stages.Saved{parts, backwards, {parts[4], parts[0], parts[5], parts[2], parts[1], parts[3]}} {
		s, out := newSaver(t, 0, nil)
		dir, err := s.Write(context.Background(), trainstate.State{Step: 1}, slices.Clone(order), false)
		must(t, err)
		if dir != stepDir(out, 1) || pointer(t, out, "last") != "step-00000001" || pointer(t, out, "best") != "" {
			t.Errorf("it is at %s, last points to %q, best to %q", dir, pointer(t, out, "last"), pointer(t, out, "best"))
		}
		ckpt, err := checkpoint.Open(dir)
		must(t, err)
		if m, o := ckpt.Model().Names(), ckpt.Optimizer().Names(); !slices.Equal(m, []string{"a", "b"}) ||
			!slices.Equal(o, []string{"m.a", "v.a", "m.b", "v.b"}) {
			t.Errorf("the model has %v, the optimizer %v", m, o)
		}
		must(t, ckpt.Close())
		trees = append(trees, tree(t, out))
	}
	same(t, trees[0], trees[1])
	same(t, trees[0], trees[2])
}

// TestSavedFiles: a checkpoint says of itself what a run and other programs need to know;
// that its tokenizer is not known is no file.
func TestSavedFiles(t *testing.T) {
	for _, tok := range []tokenizer.Tokenizer{nil, tokenizer.Bytes{}} {
		s, _ := newSaver(t, 0, tok)
		dir, err := s.Write(context.Background(), trainstate.State{Step: 1}, saved(1), false)
		must(t, err)
		ckpt, err := checkpoint.Open(dir)
		must(t, err)
		if got, err := rundir.ReadTokenizer(ckpt); got != tok || err != nil {
			t.Errorf("the tokenizer is %v, %v, want %v", got, err, tok)
		}
		text, err := ckpt.File("config.json")
		must(t, err)
		if got, err := stages.ParseHF(text); err != nil || got.Family != model.Family || got.Hidden != model.Hidden ||
			got.Layers != model.Layers {
			t.Errorf("the model is %+v, %v", got, err)
		}
		if text, err := ckpt.File("config.toml"); string(text) != "# a run's" || err != nil {
			t.Errorf("the configuration is %q, %v", text, err)
		}
		must(t, ckpt.Close())
	}
}

// TestSaveNoNumbers: a validation loss that is no number, which JSON has none of, is as
// good as none.
func TestSaveNoNumbers(t *testing.T) {
	three := 3.0
	for _, loss := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), three} {
		s, _ := newSaver(t, 0, nil)
		state := trainstate.State{Step: 1, FirstValLoss: &loss, BestValLoss: &loss}
		dir, err := s.Write(context.Background(), state, saved(1), false)
		must(t, err)
		if state.FirstValLoss != &loss {
			t.Error("the run's own state is changed")
		}
		var got trainstate.State
		must(t, json.Unmarshal([]byte(read(t, filepath.Join(dir, "trainer.json"))), &got))
		for _, v := range []*float64{got.FirstValLoss, got.BestValLoss} {
			if (v != nil) != (loss == three) || v != nil && *v != loss {
				t.Errorf("of %g there is %v", loss, v)
			}
		}
	}
}

// TestSaveKeeps the newest ones, and the best.
func TestSaveKeeps(t *testing.T) {
	s, out := newSaver(t, 2, nil)
	for step := 1; step <= 5; step++ {
		_, err := s.Write(context.Background(), trainstate.State{Step: int64(step)}, saved(step), step == 2)
		must(t, err)
	}
	if names := list(t, out, "checkpoints"); !slices.Equal(names, []string{"best", "last", "step-00000002", "step-00000004",
		"step-00000005"}) || pointer(t, out, "best") != "step-00000002" {
		t.Errorf("there are %v, best points to %q", names, pointer(t, out, "best"))
	}
}

// TestSaveSyncsFirst: no checkpoint is published before the metrics up to it are durable.
func TestSaveSyncsFirst(t *testing.T) {
	s, out := newSaver(t, 0, nil)
	full := errors.New("the disk is full")
	s.SyncMetrics = func() error { return full }
	if _, err := s.Write(context.Background(), trainstate.State{Step: 1}, saved(1), false); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if names := list(t, out); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
}

// TestSaveFails: what can't be written or pointed to is told, and what was there before is
// whole.
func TestSaveFails(t *testing.T) {
	s, out := newSaver(t, 1, nil)
	_, err := s.Write(context.Background(), trainstate.State{Step: 1}, saved(1), true)
	must(t, err)
	before := tree(t, out)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Write(ended, trainstate.State{Step: 2}, saved(2), false); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	same(t, before, tree(t, out))

	best := filepath.Join(out, "checkpoints", "best")
	must(t, errors.Join(os.Remove(best), os.Mkdir(best, 0o755)))
	if _, err := s.Write(context.Background(), trainstate.State{Step: 2}, saved(2), true); err == nil ||
		!strings.Contains(err.Error(), "after writing "+stepDir(out, 2)) || !strings.Contains(err.Error(), best) {
		t.Errorf("error %v", err)
	}
	for _, step := range []int{1, 2} {
		report, err := checkpoint.Verify(stepDir(out, step))
		must(t, err)
		must(t, report.Err())
	}
}

// TestSaveUnknown: what can't be stored is refused when a run begins, not at its first
// checkpoint.
func TestSaveUnknown(t *testing.T) {
	if _, err := rundir.NewSaver(nil, 0, nil, model, strange{}, rundir.Kept{}); err == nil || !strings.Contains(err.Error(), "strange") {
		t.Errorf("error %v", err)
	}
}

// strange is a tokenizer that has no file format.
type strange struct{ tokenizer.Bytes }

func (strange) Name() string { return "strange" }

// TestBestWeights: a run that resumes from a checkpoint has the weights that the checkpoint knows as the best, whatever was
// better since; later ones are computed again, or are kept aside where the user goes back.
func TestBestWeights(t *testing.T) {
	out := trained(t)
	l, err := begin(newConfig(t, out), 0)
	must(t, err)
	s, err := rundir.NewSaver(l.dir.Store, 0, l.cfg.TOML(), model, tokenizer.Bytes{}, rundir.Kept{})
	must(t, err)
	must(t, s.BestIn("bfloat16", model, rundir.Kept{}))
	s.SyncMetrics, s.BestStep = func() error { return nil }, l.state.BestStep
	weights := []stages.Saved{{Name: "w", Shape: []int{1, 3}, Data: []float32{1, 2, 3}},
		{Name: "norm", Index: 1, Shape: []int{1}, Data: []float32{1}}}
	best := func() (names []string) {
		for _, name := range list(t, out, "checkpoints") {
			if strings.HasPrefix(name, "best-") {
				names = append(names, name)
			}
		}
		return names
	}
	dir, err := s.WriteBest(context.Background(), trainstate.State{Step: 5}, slices.Clone(weights))
	must(t, err)
	ckpt, err := checkpoint.Open(dir)
	must(t, err)
	for name, want := range map[string]string{"w": "BF16", "norm": "F32"} {
		if info, _ := ckpt.Model().Info(name); info.DType != want {
			t.Errorf("%s is %s, want %s", name, info.DType, want)
		}
	}
	if text, err := ckpt.File("config.json"); err != nil || !strings.Contains(string(text), "bfloat16") {
		t.Errorf("the model is %s, %v", text, err)
	}
	must(t, ckpt.Close())
	state := l.state
	state.BestStep = 5
	_, err = s.Write(context.Background(), state, saved(6), false)
	must(t, err)
	for _, step := range []int64{7, 8} {
		_, err = s.WriteBest(context.Background(), trainstate.State{Step: step}, slices.Clone(weights))
		must(t, err)
	}
	if got := best(); !slices.Equal(got, []string{"best-00000005", "best-00000008"}) || pointer(t, out, "best") != got[1] {
		t.Errorf("there are %v, best points to %s", got, pointer(t, out, "best"))
	}
	must(t, l.end())
	goesOn(t, newConfig(t, out), 0, 6)
	if got := best(); !slices.Equal(got, []string{"best-00000005"}) || pointer(t, out, "best") != got[0] {
		t.Errorf("after a resume there are %v, best points to %s", got, pointer(t, out, "best"))
	}
	l = goesOn(t, newConfig(t, out), 3, 3)
	if got := best(); !slices.Equal(got, []string{"best-00000005.superseded"}) || pointer(t, out, "best") != "step-00000003" {
		t.Errorf("back at step 3 there are %v, best points to %s", got, pointer(t, out, "best"))
	}
	if w := strings.Join(l.warnings(), "\n"); !strings.Contains(w, "best-00000005.superseded") {
		t.Errorf("warnings %s", w)
	}
	refused(t, newConfig(t, out), 5, checkpoint.ErrNone)
}
