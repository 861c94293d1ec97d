package service

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/telemetry"
)

// watched trains while somebody records every other step, subscribes and asks for what is done, and returns the
// events of a subscription.
func watched(t testing.TB, out string, sets ...string) []troupe.StepEvent {
	t.Helper()
	run := testrun.Start(t, testrun.NewConfig(t, out, sets...))
	run.Record(time.Millisecond)
	s := run.Subscribe()
	var steps []troupe.StepEvent
	var all sync.WaitGroup
	all.Add(1)
	go func() { // ends with the run
		defer all.Done()
		for e := range s.Events() {
			if step, ok := e.(troupe.StepEvent); ok {
				if steps = append(steps, step); step.Step%2 == 0 {
					run.Record(time.Millisecond)
				}
			}
			_ = run.Actions()
		}
	}()
	testrun.Finish(t, run)
	all.Wait()
	if again := run.Subscribe(); len(again.Events()) != 0 {
		t.Error("a run that has ended has events")
	} else if _, more := <-again.Events(); more {
		t.Error("a run that has ended has events")
	}
	return steps
}

// TestWatchedBits: whatever is recorded of a run, its figures, weights and the optimizer's state stay the same
// to the bit.
func TestWatchedBits(t *testing.T) {
	for name, sets := range map[string][]string{
		"1 stage":         nil,
		"zb-h1":           {"pipeline.stages=3", "pipeline.schedule=zb-h1"},
		"dualpipev":       {"pipeline.stages=2", "pipeline.schedule=dualpipev"},
		"post-validation": {"pipeline.stages=2", "pipeline.schedule=zb-h2", "pipeline.post_validation=true", "optimizer.clip_norm=0"},
		"a grid":          {"pipeline.stages=2", "parallel.tensor=2", "parallel.data=2", "parallel.zero=1"},
		"bfloat16":        {"pipeline.stages=2", "device.dtype=bfloat16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, out := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "out")
			sets = append(slices.Clone(sets), "run.steps=9", "run.keep=1")
			testrun.Train(t, plain, append(sets, "run.stats_every=0")...)
			steps := watched(t, out, append(sets, "run.stats_every=1", "run.sample_tokens=5", "run.trace_every=4")...)
			testrun.SameFigures(t, plain, out)
			testrun.SameState(t, plain, out, 9)
			traced := 0
			for _, e := range steps {
				if e.Trace == nil {
					continue
				}
				traced++
				for rank, times := range e.Trace {
					if len(times) == 0 {
						t.Errorf("step %d: nothing of rank %d", e.Step, rank)
					}
				}
			}
			if traced == 0 || len(steps) != 10 {
				t.Errorf("%d steps, %d of them with traces", len(steps), traced)
			}
			if all := testrun.Records(t, out); !slices.ContainsFunc(all, func(r telemetry.Record) bool {
				return r.PeakPct != nil &&
					*r.PeakPct > 0
			}) {
				t.Error("no share of the processor's peak")
			}
		})
	}
}

// TestRecord: what is recorded is there for the step under way and for the last one, and a run that
// nobody records has none.
func TestRecord(t *testing.T) {
	run := testrun.Start(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "run.steps=100000", "pipeline.stages=2",
		"run.eval_every=0"))
	if a := run.Actions(); a.Ranks != nil {
		t.Errorf("recorded by itself: %+v", a)
	}
	run.Record(time.Hour)
	s := run.Subscribe()
	for e := range s.Events() {
		step, ok := e.(troupe.StepEvent)
		if !ok || step.Trace == nil {
			continue
		}
		if len(step.Trace) != 2 || len(step.Trace[0]) != 16 || len(step.Trace[1]) != 16 {
			t.Errorf("the trace of step %d: %v", step.Step, step.Trace)
		}
		break
	}
	seen := 0
	for i := 0; i < 1000 || seen == 0; i++ { // a step under way has done something at some time
		a := run.Actions()
		if a.Phase == 0 || len(a.Ranks) != 2 || a.Began.IsZero() {
			t.Fatalf("%+v", a)
		}
		for _, times := range a.Ranks {
			seen += len(times)
			for i, at := range times {
				if at.End.Before(at.Start) || i > 0 && at.Start.Before(times[i-1].Start) {
					t.Fatalf("step %d: %v behind %v", a.Step, at, times[i-1])
				}
			}
		}
	}
	s.Close()
	if _, more := <-s.Events(); more {
		for range s.Events() { // what was there
		}
	}
	run.Kill()
	testrun.Drain(run)
	_, _ = run.Wait()
	if a := run.Actions(); a.Phase == 0 {
		t.Errorf("the last step is forgotten: %+v", a)
	}
}

// TestSlowSubscriber: one who doesn't read loses step events and is told how many; the run and others don't
// wait for it.
func TestSlowSubscriber(t *testing.T) {
	cfg := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), fmt.Sprintf("run.steps=%d", troupe.LimitEvents+40), "model.layers=1",
		"batch.sequences=1", "run.eval_every=0", "run.checkpoint_every=0")
	run, err := troupe.Start(t.Context(), cfg, troupe.Options{Requests: []troupe.Change{{Kind: troupe.ChangePause}}}) // until both read
	if err != nil {
		t.Fatal(err)
	}
	slow, quick := run.Subscribe(), run.Subscribe()
	run.Resume()
	n := 0
	for e := range quick.Events() {
		if _, ok := e.(troupe.StepEvent); ok {
			n++
		}
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	kept, told := 0, false
	for e := range slow.Events() {
		switch e := e.(type) {
		case troupe.StepEvent:
			kept++
		case troupe.WarningEvent:
			told = told || strings.Contains(e.Text, "events were dropped")
		}
	}
	if all := troupe.LimitEvents + 42; n < all-2 || kept >= all-2 || kept < troupe.LimitEvents/2 || !told {
		t.Errorf("the quick one got %d steps, the slow one %d, and was told: %v", n, kept, told)
	}
}

// TestMarks: what happens to a run stands in events.jsonl, and a run that goes on from an older step has
// only what was up to it.
func TestMarks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, "run.steps=100000", "run.eval_every=0", "run.checkpoint_every=0"))
	pause := func() {
		run.Pause()
		for e := range run.Events() {
			if p, ok := e.(troupe.PauseEvent); ok && p.Paused {
				return
			}
		}
	}
	pause()
	if err := run.Change(troupe.Change{Kind: troupe.ChangeRate, LR: 0.25, MinLR: 0.125}); err != nil {
		t.Fatal(err)
	}
	run.Resume()
	run.Checkpoint()
	pause()
	run.Resume()
	run.Stop()
	res, _ := testrun.Finish(t, run)
	marks := func() (kinds []string, text string) {
		all, err := telemetry.ReadMarks(filepath.Join(out, "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if kinds = append(kinds, m.Kind); m.TimeMS == 0 || m.Step > res.Step {
				t.Errorf("%+v, of %d steps", m, res.Step)
			}
			text += m.Text + "\n"
		}
		return kinds, text
	}
	kinds, text := marks()
	for _, want := range []string{"start", "pause", "rate", "continue", "checkpoint", "stop", "end"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("there is no %q among %v", want, kinds)
		}
	}
	for _, want := range []string{"peak 0.25, floor 0.125", "step-0", "stopped at step"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in %s", want, text)
		}
	}
	run = testrun.Start(t, testrun.NewConfig(t, out, fmt.Sprintf("run.steps=%d", res.Step+1), "run.eval_every=0", "run.checkpoint_every=0"))
	res, _ = testrun.Finish(t, run)
	if kinds, _ = marks(); kinds[len(kinds)-1] != "end" || kinds[len(kinds)-3] != "resume" {
		t.Errorf("after it went on: %v", kinds)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	testrun.Train(t, cut, "run.steps=6", "run.checkpoint_every=3", "run.stats_every=1", "run.sample_tokens=3")
	back, err := troupe.Start(context.Background(), testrun.NewConfig(t, cut, "run.steps=4", "run.checkpoint_every=0", "run.eval_every=0",
		"run.stats_every=1"), troupe.Options{FromStep: 3})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, back)
	stats, err := telemetry.ReadStats(filepath.Join(cut, "stats.jsonl"))
	if err != nil || len(stats) != 4 || stats[3].Step != 4 {
		t.Errorf("stats of a run that went back to step 3 and on to 4: %d lines, %v", len(stats), err)
	}
	samples, err := telemetry.ReadSamples(filepath.Join(cut, "samples.jsonl"))
	if err != nil || len(samples) == 0 || samples[len(samples)-1].Step > 3 {
		t.Errorf("its samples: %+v, %v", samples, err)
	}
	if old, err := telemetry.ReadStats(filepath.Join(cut, "stats.jsonl.superseded")); err != nil || len(old) != 6 {
		t.Errorf("what was cut: %d lines, %v", len(old), err)
	}
}

// TestStats: norms by layer are those of the weights that a step begins with, and of its gradients, whose sum is the
// step's; under every layout the same.
func TestStats(t *testing.T) {
	want := filepath.Join(t.TempDir(), "want")
	testrun.Train(t, want, "run.steps=4", "run.checkpoint_every=1", "run.stats_every=1", "model.tie_embeddings=false")
	for name, sets := range map[string][]string{
		"1 stage":       nil,
		"3 stages":      {"pipeline.stages=3"},
		"tensor":        {"parallel.tensor=2", "pipeline.stages=2"},
		"data":          {"parallel.data=2"},
		"zero 1":        {"parallel.data=2", "parallel.zero=1", "pipeline.stages=2"},
		"zero 3":        {"parallel.data=2", "parallel.zero=3", "model.hidden=128", "model.layers=8"},
		"frozen layers": {"pipeline.stages=2", `model.freeze=["embed", "1"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, append([]string{"run.steps=4", "run.checkpoint_every=1", "run.stats_every=1", "model.tie_embeddings=false"},
				sets...)...)
			stats, err := telemetry.ReadStats(filepath.Join(out, "stats.jsonl"))
			if err != nil || len(stats) != 4 {
				t.Fatalf("%d lines, %v", len(stats), err)
			}
			metrics := testrun.Records(t, out)
			for i, s := range stats {
				if s.Step != i+1 || len(s.Layers) < 6 || len(s.MemBytes) == 0 || slices.Min(s.MemBytes) <= 0 {
					t.Fatalf("line %d: %+v", i+1, s)
				}
				sum := 0.0
				for _, l := range s.Layers {
					if l.GradNorm != nil {
						sum += *l.GradNorm * *l.GradNorm
					}
				}
				if norm := *metrics[i+1].GradNorm; math.Abs(math.Sqrt(sum)-norm) > 1e-9*norm {
					t.Errorf("step %d: the layers' gradients are %g, the step's %g", s.Step, math.Sqrt(sum), norm)
				}
				if i == 0 {
					continue
				}
				embed, all := weightNorms(t, out, i)
				got := 0.0
				for _, l := range s.Layers {
					got += *l.WeightNorm * *l.WeightNorm
				}
				if math.Abs(got-all) > 1e-6*all || math.Abs(*s.Layers[0].WeightNorm-embed) > 1e-6*embed {
					t.Errorf("step %d: the weights' squares are %g, of the embedding's %g; the checkpoint before it has %g and %g", s.Step, got,
						*s.Layers[0].WeightNorm, all, embed)
				}
			}
			frozen := name == "frozen layers"
			if l := stats[0].Layers; l[0].Name != "embed" || l[1].Name != "0" || l[len(l)-1].Name != "head" || (l[0].GradNorm == nil) != frozen ||
				(l[2].GradNorm == nil) != frozen || l[1].GradNorm == nil {
				t.Errorf("the layers are %+v", l)
			}
		})
	}
}

// weightNorms are the norm of the embedding and the sum of the squares of all weights of a checkpoint.
func weightNorms(t testing.TB, out string, step int) (embed, all float64) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(testrun.StepDir(out, step), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		text, err := f.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := safetensors.Float32s(info.DType, text)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, v := range values {
			sum += float64(v) * float64(v)
		}
		if all += sum; strings.Contains(name, "wte") || strings.Contains(name, "wpe") {
			embed += sum
		}
	}
	return math.Sqrt(embed), all
}

// TestSampleTexts: at each validation the model writes what its checkpoint does.
func TestSampleTexts(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	run := testrun.Start(t, testrun.NewConfig(t, out, "pipeline.stages=2", "run.eval_every=1", "run.checkpoint_every=1",
		"run.sample_tokens=12", "run.sample_prompt=the ", "run.steps=4"))
	run.Pause()
	last := 0 // that is waited for: a validation that comes while a text is being written has none
	for e := range run.Events() {
		p, ok := e.(troupe.PauseEvent)
		if !ok || !p.Paused {
			continue
		}
		for begin := time.Now(); time.Since(begin) < 5*time.Second; {
			samples, err := telemetry.ReadSamples(filepath.Join(out, "samples.jsonl"))
			if n := len(samples); err == nil && n > 0 && samples[n-1].Step >= last {
				break
			}
			time.Sleep(time.Millisecond)
		}
		last = int(p.Step) + 1
		run.Resume()
		run.Pause()
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	samples, err := telemetry.ReadSamples(filepath.Join(out, "samples.jsonl"))
	if err != nil || len(samples) < 2 {
		t.Fatalf("%+v, %v", samples, err)
	}
	for _, s := range samples {
		if s.Step == 0 {
			continue
		}
		var b strings.Builder
		o := troupe.GenerateOptions{TextOptions: troupe.TextOptions{Prompt: "the ", Tokens: 12}}
		o.From = testrun.StepDir(out, s.Step)
		if err := troupe.Generate(context.Background(), o, func(text []byte) error { b.Write(text); return nil }); err != nil {
			t.Fatal(err)
		}
		if s.Text != string([]rune(b.String())) || s.Prompt != "the " {
			t.Errorf("step %d: %q behind %q, the checkpoint writes %q", s.Step, s.Text, s.Prompt, b.String())
		}
	}
}

// TestNoSampleTexts: a run that can't write text says so and trains.
func TestNoSampleTexts(t *testing.T) {
	dir := t.TempDir()
	csv := testrun.Write(t, filepath.Join(dir, "a.csv"), "x,y\n"+strings.Repeat("1,0\n2,1\n", 40))
	cfg, err := config.Parse("csv.toml",
		[]byte("data = {format = 'csv', label = 'y'}\nmodel = {family = 'mlp', layers = 1, hidden = 4}\nrun = {steps = 2, eval_batches = 1, sample_tokens = 9}\nbatch = {sequences = 4}"),
		[]string{"data.train=" + csv, "run.out=" + filepath.Join(dir, "out")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, events := testrun.Finish(t, testrun.Start(t, cfg))
	said := func(e troupe.Event) bool {
		w, ok := e.(troupe.WarningEvent)
		return ok && strings.Contains(w.Text, "no sample text is written")
	}
	if !slices.ContainsFunc(events, said) {
		t.Errorf("nothing says so: %v", events)
	}
}

// BenchmarkRecording compares the processor time of steps that are recorded, for a reader of their traces, with that of steps
// that are not, in turns in one process: cpu-on/off is the median of the pairs' ratios. Run it with -benchtime 100x on
// an idle machine.
func BenchmarkRecording(b *testing.B) {
	const record = 20 * time.Millisecond
	run := testrun.Start(b, testrun.NewConfig(b, filepath.Join(b.TempDir(), "out"), "run.steps=1000000", "run.eval_every=0",
		"run.checkpoint_every=0", "run.stats_every=0",
		"model.layers=8", "model.hidden=128", "model.context=128", "batch.sequences=16", "batch.microbatch=1", "pipeline.stages=4",
		"model.dropout=0"))
	traced := make(chan bool, 1)
	paused := make(chan struct{}, 1)
	s := run.Subscribe()
	var reader sync.WaitGroup
	reader.Add(1)
	go func() { // ends with the run
		defer reader.Done()
		for e := range s.Events() {
			switch e := e.(type) {
			case troupe.StepEvent:
				traced <- e.Trace != nil
			case troupe.PauseEvent:
				if e.Paused {
					paused <- struct{}{}
				}
			}
		}
	}()
	run.Pause()
	step := func(on bool) (time.Duration, bool) {
		if on {
			run.Record(record)
		}
		before := sysinfo.CPUTime()
		run.Resume()
		run.Pause()
		was := <-traced
		<-paused
		time.Sleep(record + 5*time.Millisecond) // the stages update, and the recording ends
		return sysinfo.CPUTime() - before, was == on
	}
	for len(traced) > 0 { // a step may have begun before the pause
		<-traced
	}
	<-paused
	for len(traced) > 0 {
		<-traced
	}
	for range 4 {
		step(true)
		step(false)
	}
	var ratios []float64
	for b.Loop() {
		on, ok := step(true)
		off, also := step(false)
		if ok && also {
			ratios = append(ratios, float64(on)/float64(off))
		}
	}
	run.Kill()
	testrun.Drain(run)
	_, _ = run.Wait()
	reader.Wait()
	if len(ratios) == 0 {
		b.Fatal("no step was recorded as it should have been")
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "cpu-on/off")
	b.ReportMetric(float64(len(ratios)), "pairs")
}
