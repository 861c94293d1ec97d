package tensorboard

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func p(v float64) *float64 { return &v }

var began = time.Unix(1_790_000_000, 250_000_000)

// records has every figure.
var records = []telemetry.Record{
	{Step: 0, ValLoss: p(5.545177444479562), ValMetrics: map[string]float64{"accuracy": 0.125}},
	{Step: 1, Loss: p(5.5457463264465332), MTPLoss: p(6), GradNorm: p(2.25), LR: p(1e-05), Tokens: 1024, TokensPerS: p(8192), StepMS: p(125),
		BubblePct: p(33.3), PeakPct: p(45.5),
		PeakMemBytes: 104857600, Metrics: map[string]float64{"accuracy": 0.5, "a name with ü": math.Inf(1)}},
	{Step: 2, Loss: p(math.NaN()), Skipped: true},
}

// eventsIn are those of the files of a folder, in the order in which TensorBoard reads them.
func eventsIn(t *testing.T, dir string) (all []event) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // in the order of names
		events, err := readEvents(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(e.Name(), err)
		}
		all = append(all, events...)
	}
	return all
}

// shown is what TensorBoard shows of a figure: what a later session starts before counts no more.
func shown(events []event, tag string) map[int64]float32 {
	values := make(map[int64]float32)
	for _, e := range events {
		if e.start {
			for step := range values {
				if step >= e.step {
					delete(values, step)
				}
			}
		}
		if v, ok := e.scalars[tag]; ok {
			values[e.step] = v
		}
	}
	return values
}

// TestGolden: the bytes stay the same.
func TestGolden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	w, err := Create(dir, 0, began)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if err := w.Record(r, 25, began.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Text("samples", "Once\nthere *was*\xff", 2, began); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "events.bin")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is not that of %s (%v); go test . -update writes it again", golden, err)
	}

	events := eventsIn(t, dir)
	if len(events) != 6 || events[0].version != "brain.Event:2" || !events[1].start || events[1].step != 0 ||
		events[0].at != 1_790_000_000.25 {
		t.Fatalf("it begins with %+v", events)
	}
	want := map[string]float32{"train/loss": float32(*records[1].Loss), "train/mtp_loss": 6, "train/grad_norm": 2.25, "train/lr": 1e-5,
		"speed/tokens_per_s": 8192, "speed/step_ms": 125,
		"speed/bubble_pct": 33.3, "speed/bubble_ideal_pct": 25, "speed/peak_pct": 45.5, "memory/peak_bytes": 104857600, "train/accuracy": 0.5,
		"train/a name with ü": float32(math.Inf(1))}
	if got := events[3]; fmt.Sprint(got.scalars) != fmt.Sprint(want) || got.step != 1 || got.at != 1_790_000_001.25 {
		t.Errorf("step 1 has %+v", got)
	}
	if v := events[2].scalars; v["val/accuracy"] != 0.125 || v["val/loss"] != float32(*records[0].ValLoss) {
		t.Errorf("step 0 has %v", v)
	}
	if v := events[4].scalars["train/loss"]; !math.IsNaN(float64(v)) {
		t.Errorf("NaN is %v", v)
	}
	if text := events[5].texts["samples"]; text != "    Once\n    there *was*\uFFFD" {
		t.Errorf("the text is %q", text)
	}
}

// A file that is made in the same second as an older one comes behind it.
func TestOrderOfFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	for i := range 12 {
		w, err := Create(dir, i, began)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	next := int64(0)
	for _, e := range eventsIn(t, dir) {
		if e.start && e.step != next {
			t.Errorf("the session of step %d comes where that of %d should", e.step, next)
		}
		if e.start {
			next++
		}
	}
	if next != 12 {
		t.Errorf("%d sessions", next)
	}
}

// TestProperty: what is written reads as the same, whatever figures and texts there are.
func TestProperty(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		w, err := Create(dir, rapid.IntRange(0, 1<<40).Draw(t, "from"), time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "now"), 0))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // it was checked
		step, loss := rapid.IntRange(0, 1<<50).Draw(t, "step"), rapid.Float64().Draw(t, "loss")
		metrics := rapid.MapOfN(rapid.String(), rapid.Float64(), 0, 5).Draw(t, "metrics")
		text := rapid.String().Draw(t, "text")
		if err := errors.Join(w.Record(telemetry.Record{Step: step, Loss: &loss, Metrics: metrics}, -1, began),
			w.Text("t", text, step, began)); err != nil {
			t.Fatal(err)
		}
		events, err := readEvents(w.Path())
		if err != nil {
			t.Fatal(err)
		}
		if got := events[2]; got.step != int64(step) || len(metrics) == 0 &&
			math.Float32bits(got.scalars["train/loss"]) != math.Float32bits(float32(loss)) {
			t.Fatalf("step %d with loss %v reads as %+v", step, loss, got)
		}
		for name, v := range metrics {
			if tag := "train/" + clip(name, limitTagBytes); tag != "train/loss" &&
				math.Float32bits(events[2].scalars[strings.ToValidUTF8(tag, "\uFFFD")]) != math.Float32bits(float32(v)) {
				t.Fatalf("%q is %v, not %v", tag, events[2].scalars[tag], v)
			}
		}
		if got := strings.ReplaceAll(events[3].texts["t"], "    ", ""); got != strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "    ",
			"") && len(text) < limitTextBytes/2 {
			t.Fatalf("the text %q reads as %q", text, got)
		}
	})
}

func stepEvent(step int, loss float64) troupe.StepEvent {
	return troupe.StepEvent{Record: telemetry.Record{Step: step, Loss: &loss}, IdealBubblePct: 10}
}

// TestRecorder: steps that nobody told of come from the run's own file, and what a restart trains
// again counts once.
func TestRecorder(t *testing.T) {
	out := t.TempDir()
	metrics := filepath.Join(out, "metrics.jsonl")
	var lines strings.Builder
	for step := 1; step <= 9; step++ {
		fmt.Fprintf(&lines, `{"step":%d,"loss":%d}`+"\n", step, step)
	}
	if err := os.WriteFile(metrics, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(out, Folder)
	r, err := NewRecorder(Options{Run: out, Config: "[run]\n", Now: func() time.Time { return began }})
	if err != nil {
		t.Fatal(err)
	}
	// Steps 1, 2 and 5, 6 are not told.
	for _, step := range []int{3, 4, 7} {
		r.Observe(stepEvent(step, float64(step)))
	}
	r.Observe(troupe.RestartEvent{Err: errors.New("lost"), Restart: 1, Most: 2})
	for _, step := range []int{4, 5} {
		r.Observe(stepEvent(step, float64(10*step)))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[int64]float32{1: 1, 2: 2, 3: 3, 4: 40, 5: 50}
	events := eventsIn(t, dir)
	if got := shown(events, "train/loss"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("shown are %v, want %v", got, want)
	}
	if events[2].texts["config"] != "    [run]\n" {
		t.Errorf("the configuration is %v", events[2].texts)
	}

	// It goes on from step 3: a file of its own hides what is behind.
	r, err = NewRecorder(Options{Run: out, From: FirstStep(troupe.Info{ResumedAt: 3}), Now: func() time.Time { return began }})
	if err != nil {
		t.Fatal(err)
	}
	r.Observe(stepEvent(4, 400))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	want = map[int64]float32{1: 1, 2: 2, 3: 3, 4: 400}
	if got := shown(eventsIn(t, dir), "train/loss"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after it went on %v are shown, want %v", got, want)
	}
}

// What can't be written is said once, and how much it is in the end.
func TestWriteFails(t *testing.T) {
	var said []string
	r, err := NewRecorder(Options{Dir: filepath.Join(t.TempDir(), "board"), Warn: func(text string) { said = append(said, text) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.w.Close(); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		r.Observe(stepEvent(step, 1))
	}
	if len(said) != 1 || !strings.Contains(said[0], "training continues") {
		t.Errorf("said is %q", said)
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "3 events could not be written") {
		t.Errorf("in the end: %v", err)
	}
}

func TestExport(t *testing.T) {
	out := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	metrics := filepath.Join(out, "metrics.jsonl")
	put("metrics.jsonl", `{"step":0,"val_loss":4}`+"\n"+`{"step":1,"loss":3,"step_ms":500}`+"\n"+`{"step":2,"loss":null,"step_ms":1000}`+"\n"+
		`{"step":3,"lo`)
	put("config.toml", "[run]")
	put("samples.jsonl", `{"step":0,"prompt":"Once","text":" upon"}`+"\n"+`{"step":2,"prompt":"Once","text":" more"}`+"\n")
	if err := os.Chtimes(metrics, began, began); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(out, "board")
	e, err := Export(out, dir)
	if err != nil || e.Records != 3 || e.Last != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	events := eventsIn(t, dir)
	last := events[len(events)-1]
	if at := 1_790_000_000.25; last.at != at || events[len(events)-3].at != at-1 {
		t.Errorf("the steps end at %v and %v, want %v", events[len(events)-3].at, last.at, at)
	}
	if got := shown(events, "train/loss"); got[1] != 3 || !math.IsNaN(float64(got[2])) || len(got) != 2 {
		t.Errorf("the losses are %v", got)
	}
	var texts []string
	for _, e := range events {
		for tag, text := range e.texts {
			texts = append(texts, fmt.Sprint(tag, e.step, text))
		}
	}
	if want := []string{"config0    [run]", "samples0    Once upon", "samples2    Once more"}; !slices.Equal(texts, want) {
		t.Errorf("the texts are %q", texts)
	}
	if _, err := Export(out, dir); !errors.Is(err, ErrFolder) {
		t.Errorf("a folder with event files: %v", err)
	}
	if _, err := Export(out, ""); err != nil {
		t.Errorf("into the run's folder: %v", err)
	}
	put("metrics.jsonl", "")
	if _, err := Export(out, filepath.Join(out, "other")); !errors.Is(err, ErrNoRecords) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := Export(filepath.Join(out, "none"), filepath.Join(out, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what failed has left a folder: %v", err)
	}
}

// TestLinks: a link in a run's folder leads nowhere.
func TestLinks(t *testing.T) {
	out, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(out, Folder)); err != nil {
		t.Skip(err)
	}
	if r, err := NewRecorder(Options{Run: out}); err == nil {
		t.Errorf("it writes %s", r.Path())
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("behind the link are %v, %v", left, err)
	}
}

// TestSamples: the texts of validations come as the run's file has them, each once.
func TestSamples(t *testing.T) {
	out := t.TempDir()
	r, err := NewRecorder(Options{Run: out})
	if err != nil {
		t.Fatal(err)
	}
	validated := func(step int) troupe.StepEvent {
		e := stepEvent(step, 1)
		e.ValLoss = p(2)
		return e
	}
	name := filepath.Join(out, "samples.jsonl")
	r.Observe(validated(0)) // there is no file yet
	for step := 1; step <= 3; step++ {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(f, `{"step":%d,"prompt":"a","text":"b%d"}`+"\n", step, step)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if step < 3 {
			r.Observe(validated(step))
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range eventsIn(t, filepath.Join(out, Folder)) {
		if text, ok := e.texts["samples"]; ok {
			texts = append(texts, fmt.Sprint(e.step, text))
		}
	}
	if want := []string{"1    ab1", "2    ab2", "3    ab3"}; !slices.Equal(texts, want) {
		t.Errorf("the samples are %q", texts)
	}
}
