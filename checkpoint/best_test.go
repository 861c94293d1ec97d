package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
)

// weights is small without the optimizer's state.
func weights(step int) checkpoint.Content {
	c := small(step, "best")
	c.Optimizer = nil
	return c
}

func saveBest(t testing.TB, s *checkpoint.Store, step int) string {
	t.Helper()
	dir, err := s.SaveBest(context.Background(), weights(step))
	must(t, err)
	return dir
}

// TestSaveBest: the best weights are a model that readers open, and no checkpoint that a run resumes from or prunes by.
func TestSaveBest(t *testing.T) {
	s, out := saved(t, 100)
	must(t, s.SetLast(100))
	dir := saveBest(t, s, 150)
	at := filepath.Join(out, "checkpoints", "best")
	if step, ok, err := s.BestWeights(); step != 150 || !ok || err != nil || filepath.Base(dir) != "best-00000150" {
		t.Fatalf("best weights of step %d, %v, %v, in %s", step, ok, err, dir)
	}
	c, err := checkpoint.OpenAt(at)
	must(t, err)
	checkTensors(t, c.Model(), weights(150).Model)
	if c.Step() != 150 || len(c.Optimizer().Names()) > 0 {
		t.Errorf("it is of step %d, with an optimizer's %q", c.Step(), c.Optimizer().Names())
	}
	must(t, c.Close())
	if steps, err := s.Steps(); err != nil || !slices.Equal(steps, []int{100}) {
		t.Errorf("checkpoints of %d, %v", steps, err)
	}
	if got := newest(t, s); got.step != 100 {
		t.Errorf("the newest is %+v", got)
	}
	if _, err := s.At(150); !errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), "no run can resume from it") {
		t.Errorf("to resume from it: %v", err)
	}
	if report, err := checkpoint.VerifyAt(at); err != nil || !report.Intact() {
		t.Errorf("%v, %v", report, err)
	}
	if look, err := s.LookBest(150, "trainer.json"); err != nil || !look.Intact() || look.Bytes == 0 || look.File == nil {
		t.Errorf("%+v, %v", look, err)
	}
	if _, err := s.LookBest(151, "trainer.json"); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("of a step that has none: %v", err)
	}

	// A checkpoint of the same step does not stay for the sake of the pointer.
	save(t, s, small(150, ""))
	save(t, s, small(160, ""))
	must(t, s.SetLast(160))
	if removed, err := s.Prune(1); err != nil || !slices.Equal(removed, []int{100, 150}) {
		t.Errorf("removed %d, %v", removed, err)
	}
	with := small(170, "")
	if _, err := s.SaveBest(context.Background(), with); err == nil {
		t.Error("best weights with an optimizer's state")
	}
}

// TestPruneBest keeps what `best` points to and what a checkpoint knows as the best.
func TestPruneBest(t *testing.T) {
	s, out := saved(t, 100)
	names := func() (names []string) {
		for _, name := range listing(t, filepath.Join(out, "checkpoints")) {
			if strings.HasPrefix(name, "best-") {
				names = append(names, name)
			}
		}
		return names
	}
	for _, step := range []int{90, 110, 120} {
		saveBest(t, s, step)
	}
	must(t, s.PruneBest(90))
	if got := names(); !slices.Equal(got, []string{"best-00000090", "best-00000120"}) {
		t.Errorf("left %q", got)
	}
	must(t, s.PointBest(90)) // the run resumes from step 100
	must(t, s.PruneBest(90))
	if got := names(); !slices.Equal(got, []string{"best-00000090"}) {
		t.Errorf("left %q", got)
	}
	if err := s.PointBest(95); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("to a step without any: %v", err)
	}
	must(t, s.PointBest(100))
	if step, ok, err := s.Best(); step != 100 || !ok || err != nil {
		t.Errorf("best is %d, %v, %v", step, ok, err)
	}
	must(t, s.PointBest(90))
	must(t, s.DropBest())
	if _, ok, _ := s.BestWeights(); !ok {
		t.Error("the pointer to existing weights was dropped")
	}
	paths, err := s.SetBestAside(80)
	if err != nil || len(paths) != 1 || filepath.Base(paths[0]) != "best-00000090.superseded" || len(names()) != 1 {
		t.Errorf("renamed %q, %v, left %q", paths, err, names())
	}
	must(t, s.DropBest())
	if _, ok, err := s.Best(); ok || err != nil {
		t.Errorf("it points to nothing: %v, %v", ok, err)
	}
	for _, target := range []string{"best-1", "best--0000001", "best-00000090x"} {
		must(t, os.WriteFile(filepath.Join(out, "checkpoints", "best"), []byte(target), 0o600))
		if err := s.PruneBest(); len(names()) > 1 && err == nil {
			t.Errorf("%q is taken for the best", target)
		}
	}
	must(t, os.WriteFile(filepath.Join(out, "checkpoints", "last"), []byte("best-00000090"), 0o600))
	if _, _, err := s.Last(); err == nil {
		t.Error("last points to weights without an optimizer's state")
	}
}
