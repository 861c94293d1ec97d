package rundir_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// everyTwo has checkpoints of the steps 2, 4 and 6.
var everyTwo = []string{"run.checkpoint_every=2", "run.eval_every=0"}

// TestFromStep: a run goes back to a step on a person's word. What is newer is kept aside,
// byte for byte, whatever state it is in, and the way back is what the checkpoints know.
func TestFromStep(t *testing.T) {
	out := trained(t, everyTwo...)
	manifest := filepath.Join(stepDir(out, 4), "manifest.json")
	write(t, manifest, strings.Replace(read(t, manifest), `"format_version": 1`, `"format_version": 2`, 1))
	must(t, os.Remove(filepath.Join(stepDir(out, 6), "trainer.json")))
	metrics, trees := read(t, filepath.Join(out, "metrics.jsonl")), map[int]string{4: tree(t, stepDir(out, 4)), 6: tree(t, stepDir(out, 6))}

	l := live(t, newConfig(t, out, everyTwo...), 2)
	want := []string{
		"the checkpoint of step 6 was renamed to " + stepDir(out, 6) + ".superseded",
		"the checkpoint of step 4 was renamed to " + stepDir(out, 4) + ".superseded",
		"training resumes from step 2; the metrics of all steps so far were copied to " + filepath.Join(out, "metrics.jsonl.superseded"),
	}
	if w := l.warnings(); !slices.Equal(w, want) {
		t.Errorf("warnings %q, want %q", w, want)
	}
	for step, was := range trees {
		same(t, was, tree(t, stepDir(out, step)+".superseded"))
	}
	if read(t, filepath.Join(out, "metrics.jsonl.superseded")) != metrics || !slices.Equal(steps(t, out), upTo(6)) {
		t.Errorf("kept are the metrics\n%s", read(t, filepath.Join(out, "metrics.jsonl.superseded")))
	}
	d := goesOn(t, newConfig(t, out, everyTwo...), 0, 6).state.Decisions
	if len(d) != 1 || d[0].Kind != trainstate.FromStep || d[0].Step != 2 || d[0].Detail != "superseded: the checkpoints of steps 6, 4" {
		t.Errorf("recorded: %+v", d)
	}

	// To another step once more: what is in the way is numbered.
	live(t, newConfig(t, out, everyTwo...), 4)
	for _, name := range []string{"step-00000006.superseded", "step-00000006.superseded-2", "step-00000004.superseded"} {
		if names := list(t, out, "checkpoints"); !slices.Contains(names, name) {
			t.Errorf("the checkpoints are %v, and not %s", names, name)
		}
	}
	if d := goesOn(t, newConfig(t, out, everyTwo...), 0, 6).state.Decisions; len(d) != 2 || d[1].Step != 4 {
		t.Errorf("recorded: %+v", d)
	}
}

// TestFromStepRefuses a step without a checkpoint, or with one that is damaged or not
// whole: a person has named it.
func TestFromStepRefuses(t *testing.T) {
	out := trained(t, everyTwo...)
	refused(t, newConfig(t, out), 5, checkpoint.ErrNone, "of step 5", "steps 2, 4, 6;")
	must(t, os.Remove(filepath.Join(stepDir(out, 4), "trainer.json")))
	refused(t, newConfig(t, out), 4, checkpoint.ErrMissing, stepDir(out, 4), "trainer.json")
	flip(t, filepath.Join(stepDir(out, 2), "model.safetensors"))
	refused(t, newConfig(t, out), 2, checkpoint.ErrAllDamaged, stepDir(out, 2), "model.safetensors")
}

// TestFromStepOnceMore: the same command given again, as a supervisor gives it, goes on
// from where the run is, as long as that can be known, and loses nothing.
func TestFromStepOnceMore(t *testing.T) {
	every := []string{"run.checkpoint_every=1", "run.eval_every=0"}
	at := func(out string, step int, name string) string { return filepath.Join(stepDir(out, step), name) }
	alone := func(t *testing.T, out string) { // 6 alone knows of the way back
		for step := 3; step < 6; step++ {
			must(t, os.RemoveAll(stepDir(out, step)))
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, out string)
		from    int    // what it goes on from
		aside   string // what of step 6 is kept, besides what the first way back has kept; "": nothing
		again   bool   // it goes back once more, and says so in what it saves
		is      error  // nil: it begins
		refusal []string
	}{
		{name: "as it was", change: func(*testing.T, string) {}, from: 6},
		{name: "the newest's state is damaged", change: func(t *testing.T, out string) { flip(t, at(out, 6, "trainer.json")) }, from: 5,
			aside: "damaged"},
		{name: "the newest's weights are damaged", change: func(t *testing.T, out string) { flip(t, at(out, 6, "model.safetensors")) }, from: 5,
			aside: "damaged"},
		{name: "the newest's weights are cut short", change: func(t *testing.T,
			out string) {
			must(t, os.Truncate(at(out, 6, "model.safetensors"), 9))
		}, from: 5, aside: "damaged"},
		{name: "the newest has no state", change: func(t *testing.T, out string) { must(t, os.Remove(at(out, 6, "trainer.json"))) },
			is: checkpoint.ErrMissing, refusal: []string{"trainer.json", "went back to step 2 on request and has reached step 6 since",
				"move the newer checkpoints away", "--from-step (available: 1, 2, 3, 4, 5)"}},
		{name: "the newest has no manifest", change: func(t *testing.T, out string) { must(t, os.Remove(at(out, 6, "manifest.json"))) },
			is: checkpoint.ErrMissing, refusal: []string{"manifest.json", "went back to step 2 on request"}},
		{name: "the newest's state is a newer program's", change: func(t *testing.T, out string) {
			rewrite(t, out, 6, func(files map[string][]byte) { files["trainer.json"] = []byte(`{"format_version": 3}`) })
		}, is: checkpoint.ErrVersion, refusal: []string{"version 3"}},
		{name: "one knows, and is whole", change: alone, from: 6},
		{name: "one knows, and its state is damaged", change: func(t *testing.T, out string) {
			alone(t, out)
			flip(t, at(out, 6, "trainer.json"))
		}, from: 2, aside: "superseded-2", again: true},
		{name: "one knows, and its weights are damaged", change: func(t *testing.T, out string) {
			alone(t, out)
			flip(t, at(out, 6, "model.safetensors"))
		}, from: 2, aside: "superseded-2", again: true},
		{name: "one knows, and has no weights", change: func(t *testing.T, out string) {
			alone(t, out)
			must(t, os.Remove(at(out, 6, "model.safetensors")))
		}, is: checkpoint.ErrMissing, refusal: []string{"model.safetensors", "went back to step 2 on request"}},
		{name: "one knows, and its weights are damaged, and so is the one to go back to", change: func(t *testing.T, out string) {
			alone(t, out)
			flip(t, at(out, 6, "model.safetensors"))
			flip(t, at(out, 2, "model.safetensors"))
		}, is: checkpoint.ErrAllDamaged, refusal: []string{stepDir("", 2)}},
		{name: "one knows, and is the one that a damaged one was to replace", change: func(t *testing.T, out string) {
			alone(t, out)
			must(t, os.CopyFS(stepDir(out, 6)+".replaced", os.DirFS(stepDir(out, 6))))
			flip(t, at(out, 6, "trainer.json"))
		}, from: 6, aside: "damaged"},
		{name: "none is newer", change: func(t *testing.T, out string) {
			alone(t, out)
			must(t, os.RemoveAll(stepDir(out, 6)))
		}, from: 2, again: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := trained(t, every...)
			cfg := newConfig(t, out, every...)
			live(t, cfg, 2)
			tt.change(t, out)
			var was string
			if _, err := os.Stat(stepDir(out, 6)); err == nil {
				was = tree(t, stepDir(out, 6))
			}
			if tt.is != nil {
				refused(t, cfg, 2, tt.is, tt.refusal...)
				return
			}
			l, err := begin(cfg, 2)
			must(t, err)
			if l.state.Step != int64(tt.from) {
				t.Errorf("it goes on from step %d, want %d", l.state.Step, tt.from)
			}
			must(t, errors.Join(l.train(), l.end()))
			if tt.aside != "" {
				same(t, was, tree(t, stepDir(out, 6)+"."+tt.aside))
			}
			if d := l.state.Decisions; len(d) == 0 || d[len(d)-1].Kind != trainstate.FromStep || d[len(d)-1].Step != 2 {
				t.Errorf("what it saves doesn't know of the way back: %+v", d)
			}
			told := slices.ContainsFunc(l.warnings(), func(w string) bool {
				return strings.Contains(w, "went back to step 2 on request and has reached step 6 since: it resumes from there")
			})
			if told == tt.again {
				t.Errorf("warnings %q", l.warnings())
			}
			before := tree(t, filepath.Join(out, "checkpoints"))
			goesOn(t, cfg, 2, 6)
			same(t, before, tree(t, filepath.Join(out, "checkpoints")))
		})
	}
}

// TestFromStepThenAnother: the last word counts, not one before it.
func TestFromStepThenAnother(t *testing.T) {
	out := trained(t, everyTwo...)
	cfg := newConfig(t, out, everyTwo...)
	live(t, cfg, 2)
	live(t, cfg, 4)
	goesOn(t, cfg, 4, 6)
	goesOn(t, cfg, 2, 2)
}

// TestFromStepOfTheNewest is a word too: the same command given once more goes on.
func TestFromStepOfTheNewest(t *testing.T) {
	out := trained(t, everyTwo...)
	cfg := newConfig(t, out, append(everyTwo, "run.steps=10")...)
	l := live(t, cfg, 6)
	if d := l.state.Decisions; len(d) != 1 || d[0].Step != 6 || d[0].Detail != "there was no newer checkpoint" || len(l.warnings()) > 0 {
		t.Errorf("recorded: %+v, warnings %q", d, l.warnings())
	}
	if l := goesOn(t, cfg, 6, 10); len(l.state.Decisions) != 1 {
		t.Errorf("recorded: %+v", l.state.Decisions)
	}
	goesOn(t, cfg, 0, 10)
}

// TestFromStepUnlisted: where the checkpoints can't be listed, nothing is known.
func TestFromStepUnlisted(t *testing.T) {
	out := trained(t, everyTwo...)
	l, err := begin(newConfig(t, out), 0)
	must(t, err)
	must(t, l.end())
	if _, err := l.dir.Resume(2); err == nil {
		t.Error("a folder that is closed was listed")
	}
}
