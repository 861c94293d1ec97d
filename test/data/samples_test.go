package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestSamplesBits: a classifier's run is the same in every layout, through a checkpoint and
// under another number of stages.
func TestSamplesBits(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "want")
	testrun.TrainDigits(t, want)
	last := testrun.Records(t, want)
	if m := last[len(last)-1]; m.Metrics["accuracy"] <= 0 || m.ValMetrics["accuracy"] <= 0 || m.Tokens != 6*24 {
		t.Fatalf("the last line is %+v", m)
	}
	for i, sets := range [][]string{
		{"pipeline.stages=3"},
		{"pipeline.stages=6", "pipeline.schedule=zb-h1"},
		{"pipeline.stages=2", "pipeline.chunks=3", "pipeline.schedule=interleaved"},
		{"pipeline.stages=3", "pipeline.schedule=zb-v", "pipeline.recompute=full"},
		{"pipeline.stages=2", "pipeline.layout=Et||tt|tL", "pipeline.chunks=2", "pipeline.schedule=interleaved"},
		{"pipeline.stages=3", "pipeline.schedule=zb-h1"},
		{"pipeline.stages=2", "device.threads=1"},
	} {
		out := filepath.Join(dir, fmt.Sprint(i))
		testrun.TrainDigits(t, out, sets...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 6)
	}
	out := filepath.Join(dir, "resumed")
	testrun.TrainDigits(t, out, "run.steps=3", "optimizer.warmup_steps=2", "optimizer.decay=constant")
	testrun.TrainDigits(t, out, "optimizer.decay=constant", "pipeline.stages=4")
	alone := filepath.Join(dir, "alone")
	testrun.TrainDigits(t, alone, "optimizer.decay=constant")
	testrun.SameState(t, alone, out, 6)
}

// TestPredict: what a model gives out, in order, and its loss and metrics, are those of its
// run's last validation, which was of all samples.
func TestPredict(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	testrun.TrainDigits(t, out, "run.eval_batches=15") // of 24
	line := testrun.Records(t, out)
	last := line[len(line)-1]
	o := troupe.PredictOptions{ModelOptions: troupe.ModelOptions{From: out}, Microbatch: 32}
	next := 0
	res, err := troupe.Predict(t.Context(), o, func(p troupe.Prediction) error {
		logits, ok := p.Output("logits")
		if !ok || p.First != next || len(logits.Shape) != 2 || logits.Shape[1] != 10 {
			t.Fatalf("samples from %d: %v, %v", p.First, logits.Shape, ok)
		}
		next += logits.Shape[0]
		return nil
	})
	if err != nil || next != 360 || res.Windows != 360 {
		t.Fatalf("%d samples, %+v, %v", next, res, err)
	}
	if res.Metrics["accuracy"] != last.ValMetrics["accuracy"] || math.Abs(res.Loss-*last.ValLoss) > 1e-6 {
		t.Errorf("%+v, the run's last line is %v, %v", res, *last.ValLoss, last.ValMetrics)
	}
	other, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: o.ModelOptions,
		Data: []string{"examples/digits/digits-train.csv"}})
	if err != nil || other.Windows != 1437 {
		t.Errorf("on other data: %+v, %v", other, err)
	}
	enough := errors.New("enough")
	if _, err := troupe.Predict(t.Context(), o, func(troupe.Prediction) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v, want %v", err, enough)
	}
	if err := troupe.Generate(t.Context(), troupe.GenerateOptions{ModelOptions: o.ModelOptions}, nil); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("a classifier writes text: %v", err)
	}
}

// TestSamplesRefused: what does not fit is refused before the folder is touched, with the row.
func TestSamplesRefused(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short.csv")
	text, err := os.ReadFile("examples/digits/digits-train.csv")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(short, text[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sets []string
		says string
	}{
		{[]string{"data.train=" + short}, "short.csv"},
		{[]string{"data.classes=5"}, "digits-train.csv"},
		{[]string{"data.label=digit"}, `"digit"`},
		{[]string{"model.family=gpt2"}, "model.family"},
		{[]string{"data.format=text"}, "data.format"},
		{[]string{"pipeline.layout=EttttL|"}, "pipeline.layout"},
	} {
		cfg, err := config.Parse("digits.toml", []byte(testrun.DigitsRun), append([]string{"run.out=" + filepath.Join(dir, "out")}, c.sets...),
			nil)
		if err == nil {
			var run *troupe.Run
			if run, err = troupe.Start(context.Background(), cfg, troupe.Options{}); err == nil {
				testrun.Drain(run)
				_, err = run.Wait()
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want %q in it", c.sets, err, c.says)
		}
	}
}

// TestSamplesChanged: a run goes on with the data that it was begun with.
func TestSamplesChanged(t *testing.T) {
	dir := t.TempDir()
	out, data := filepath.Join(dir, "run"), filepath.Join(dir, "data.csv")
	testrun.Write(t, data, testrun.Read(t, "examples/digits/digits-train.csv"))
	testrun.TrainDigits(t, out, "run.steps=3", "data.train="+data)
	testrun.Write(t, data, strings.Replace(testrun.Read(t, data), ",16,", ",15,", 1))
	cfg := testrun.DigitsConfig(t, out, "data.train="+data)
	if _, err := troupe.Start(context.Background(), cfg, troupe.Options{}); !errors.Is(err, troupe.ErrOutput) {
		t.Fatalf("error %v, want %v", err, troupe.ErrOutput)
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{AcceptNewData: true})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, run)
}

// TestStream: a run of a stream that can be opened at a position goes on from a checkpoint
// with the same bits; one of another can't; one that fails midway says where, and its last
// checkpoint is whole.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	begin := func(out string, sets ...string) (*troupe.Run, error) {
		cfg, err := config.Parse("stream.toml", []byte(testrun.StreamRun), append([]string{"run.out=" + filepath.Join(dir, out)}, sets...), nil)
		if err != nil {
			t.Fatal(err)
		}
		return troupe.Start(context.Background(), cfg, troupe.Options{})
	}
	whole := func(out string, sets ...string) {
		t.Helper()
		run, err := begin(out, sets...)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Finish(t, run)
	}
	whole("alone")
	whole("parts", "run.steps=3")
	whole("parts", "pipeline.stages=1")
	testrun.SameState(t, filepath.Join(dir, "alone"), filepath.Join(dir, "parts"), 6)

	whole("tape", "data.format=test-tape")
	testrun.SameState(t, filepath.Join(dir, "alone"), filepath.Join(dir, "tape"), 6)
	if _, err := begin("tape", "data.format=test-tape", "run.steps=9"); !errors.Is(err, samples.ErrPosition) {
		t.Errorf("a tape goes on: %v", err)
	}

	run, err := begin("torn", "data.format=test-torn")
	if err != nil {
		t.Fatal(err)
	}
	testrun.Drain(run)
	if _, err := run.Wait(); !errors.Is(err, io.ErrNoProgress) || !strings.Contains(err.Error(), "sample 50 of the stream") {
		t.Errorf("error %v", err)
	}
	testrun.SameState(t, filepath.Join(dir, "alone"), filepath.Join(dir, "torn"), 3)
}

const textRun = `
[run]
steps = 6
eval_every = 3
eval_batches = 2
[model]
family = "stack"
context = 16
stack = ["embed field=tokens out=12", "norm", "dense out=24 act=gelu dropout=0.1", "dense out=256", "cross_entropy field=targets"]
[data]
train = ["testdata/troupe.txt"]
[batch]
sequences = 8
microbatch = 1
[optimizer]
lr = 1e-2
warmup_steps = 2
`

// TestOwnFamilyOnText: layers that are no language model learn from text, too.
func TestOwnFamilyOnText(t *testing.T) {
	dir := t.TempDir()
	run := func(out string, sets ...string) {
		t.Helper()
		cfg, err := config.Parse("text.toml", []byte(textRun), append([]string{"run.out=" + filepath.Join(dir, out)}, sets...), nil)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Finish(t, testrun.Start(t, cfg))
	}
	run("a")
	run("b", "pipeline.stages=3", "pipeline.schedule=zb-h1")
	testrun.SameFigures(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	if r := testrun.Records(t, filepath.Join(dir, "a")); *r[len(r)-1].ValLoss >= *r[0].ValLoss {
		t.Errorf("the validation loss goes from %g to %g", *r[0].ValLoss, *r[len(r)-1].ValLoss)
	}
}

// TestSamplesPostValidation: a classifier whose updates are applied ahead, kept and rolled back, is the same.
func TestSamplesPostValidation(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "want")
	sets := []string{"optimizer.clip_norm=0.9", "run.steps=24", "run.checkpoint_every=12", "run.eval_every=8"}
	testrun.TrainDigits(t, want, sets...)
	for i, more := range [][]string{
		{"pipeline.stages=3", "pipeline.schedule=zb-h1"},
		{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.recompute=full"},
	} {
		out := filepath.Join(dir, fmt.Sprint(i))
		testrun.TrainDigits(t, out, append(append(more, "pipeline.post_validation=true"), sets...)...)
		testrun.SameFigures(t, want, out)
		testrun.SameState(t, want, out, 24)
		how := make(map[string]int)
		for _, r := range testrun.Records(t, out) {
			how[r.Update]++
		}
		t.Log(how)
	}
}

// TestLabels: a first start says what is odd about labels, once; what a model can't learn from is refused without a dump.
func TestLabels(t *testing.T) {
	dir := t.TempDir()
	csv := func(name string, labels ...string) string {
		text := "a,b,label\n"
		for i := range 40 {
			text += fmt.Sprintf("%d,%d,%s\n", i, i%7, labels[i%len(labels)])
		}
		return testrun.Write(t, filepath.Join(dir, name), text)
	}
	out := filepath.Join(dir, "out")
	sets := []string{"data.train=" + csv("holes.csv", "3", "10"), "data.val=" + csv("val.csv", "3", "5"), "data.label=label", "model.layers=1",
		"optimizer.decay=constant"}
	run := testrun.Start(t, testrun.DigitsConfig(t, out, sets...))
	_, events := testrun.Finish(t, run)
	w := testrun.EventsOf[troupe.WarningEvent](events)
	if len(w) != 2 || !strings.Contains(w[0].Text, "8 of the 11 classes") ||
		!strings.Contains(w[1].Text, "have validation samples (20) but no training samples: 5") ||
		run.Info().Classes != "11 classes, 2 with training samples: 3 (20), 10 (20)" {
		t.Errorf("warnings %q, classes %q", w, run.Info().Classes)
	}
	_, events = testrun.Finish(t, testrun.Start(t, testrun.DigitsConfig(t, out, append(sets, "run.steps=7")...)))
	if w := testrun.EventsOf[troupe.WarningEvent](events); len(w) > 0 {
		t.Errorf("resumed, it warns %q", w)
	}
	// Other data than the model's.
	_, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out},
		Data: []string{testrun.Write(t, filepath.Join(dir, "wide.csv"), "a,b,c,label\n1,2,3,3\n")}})
	if err == nil || !strings.Contains(err.Error(), `"x" has shape [3] in each sample, not [2]`) {
		t.Errorf("other columns: %v", err)
	}
	// Labels of more dimensions than one.
	images := testrun.Write(t, filepath.Join(dir, "images"), "\x00\x00\x08\x02\x00\x00\x00\x08\x00\x00\x00\x02"+strings.Repeat("\x01\x02", 8))
	labels := testrun.Write(t, filepath.Join(dir, "labels"), "\x00\x00\x08\x03\x00\x00\x00\x08\x00\x00\x00\x02\x00\x00\x00\x01"+
		strings.Repeat("\x00\x01", 8))
	cfg, err := config.Parse("idx.toml",
		[]byte("[run]\nsteps = 1\n[model]\nfamily = 'mlp'\nlayers = 1\nhidden = 4\n[data]\nformat = 'idx'\nval_fraction = 0.5\n[batch]\nsequences = 2\n"),
		[]string{"data.train=" + images, "data.labels=" + labels, "run.out=" + filepath.Join(dir, "idx")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = troupe.Start(t.Context(), cfg, troupe.Options{}); err == nil ||
		!strings.Contains(err.Error(), `the label "y" has the shape [2 1] in each sample, but an mlp predicts one class for a sample`) {
		t.Errorf("labels of 3 dimensions: %v", err)
	}
}
