package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

func at(ms float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(ms * float64(time.Millisecond)))
}

// record returns a record with every figure.
func record() telemetry.Record {
	r := telemetry.Record{Step: 3, Tokens: 4096, Epoch: 1.25, TimeMS: 1767323045000, Skipped: true, Update: "kept",
		Metrics:    map[string]float64{"accuracy": 0.5},
		ValMetrics: map[string]float64{"accuracy": 0.25}, ValLosses: map[string]float64{"legal": 2.5}}
	for i := range telemetry.Figures {
		v := float64(i + 1)
		telemetry.Figures[i].Set(&r, &v)
	}
	return r
}

// whole returns an event of each kind in which every field has a value.
func whole() []event.Event {
	info := event.Info{Name: "tiny", Out: "runs/tiny", ID: "0190a0b0", Family: "gpt2", Parameters: 1000, Frozen: 10, Vocab: 256,
		TrainTokens: 9000, ValTokens: 900, EvalWindows: 20, EvalSets: "legal (3 windows)", EpochWindows: 140, EpochSteps: 8.75, Epochs: 1.5,
		Steps: 100, ResumedAt: 50,
		Changed:  "run.keep 3 → 1",
		Schedule: "1f1b", Stages: 2, Ranks: 4, Grid: "2 × 2", Chunks: 2, Microbatches: 4, Layout: "Et*2|t*2,L", BubblePct: 20,
		PeakInFlight: []int{2, 1}, Device: "cpu", Threads: 2, Samples: true, Classes: "2 classes", Text: "eos 0", Auto: "no GPU",
		Documents: &event.Documents{Train: 24, Val: 6, TrainLearned: 338, ValLearned: 80, Context: 128, Longest: 140, Cut: 2, Dropped: 1,
			Template: "chat_template.jinja", File: "chat.jsonl", Row: 3, Example: []event.Piece{{Text: "Hello", Learned: true}}},
		Sources: "chat: 50 % of the sequences",
		Packing: &event.Packing{Mode: "first-fit", Sequences: 9, Documents: 3.5, FullPct: 95, Targets: 1200},
		Kernels: "cpu-avx2"}
	action := func(typ scheduler.Type, mb int32) scheduler.Action {
		return scheduler.Action{Chunk: 1, Type: typ, Microbatch: mb}
	}
	pair := action(scheduler.F, 2)
	pair.Overlap = true
	status := event.Status{Time: at(0), Step: 6, Steps: 100, Remaining: 90 * time.Second, Actors: []event.Snapshot{
		{Actor: "scheduler", Rank: -1, Step: 7, Phase: event.Train, Doing: event.Waiting, Wait: event.WaitStages, From: "stage 1", Held: 1,
			Need:  2,
			Since: at(-1500), Host: "w0", Heard: at(-250)},
		{Actor: "stage 1", Rank: 1, Step: 7, Phase: event.Eval, Doing: event.Waiting, Action: pair, Wait: event.WaitGroup,
			Needs: action(scheduler.B, 0), From: "stage 2", Held: 3, Need: 4, Collective: "all-reduce of 2 ranks", Since: at(-1234.567891),
			Host:  "w1",
			Heard: at(-0.001)},
	}, Requests: []event.Change{{Kind: event.ChangePause, Step: 9}}, Cut: []event.CutLink{{From: "w0", To: "w1",
		For: 3100 * time.Millisecond}}}
	rate := event.Change{Kind: event.ChangeRate, Step: 8, LR: 1e-3, MinLR: 1e-5, Now: true, Steps: 100, WarmupSteps: 5, Decay: "wsd",
		DecaySteps: 20, Points: "1:0.001 100:1e-05", Note: "optimizer.lr 0.01 → 0.001"}
	old := rate
	old.Step, old.LR, old.MinLR = 5, 1e-2, 1e-4
	result := event.Result{Step: 90, Steps: 100, Stopped: true, Early: true, FirstValLoss: 5.5, LastValLoss: 2.5, BestValLoss: 2.25,
		BestStep: 75,
		Dir:      "runs/tiny/checkpoints/step-00000090", Updates: event.Updates{Kept: 80, RolledBack: 6, Waited: 4}}
	return []event.Event{
		event.StartEvent{Info: info},
		event.StepEvent{Record: record(), IdealBubblePct: 20,
			Trace: [][]event.ActionTime{{{Action: pair, Start: at(1), End: at(2.000001), Parts: []scheduler.PartTime{
				{Start: at(1), End: at(1.25), Exchange: scheduler.FD, Sent: at(1.125), Came: at(1.5)}, {Start: at(1.75), End: at(2)}}},
				{Action: action(scheduler.B, 3), Start: at(2), End: at(3.5)}},
				{{Action: action(scheduler.W, 1), Start: at(0.5), End: at(4)}}},
			Clocks: []event.Clock{{Process: "w1", Ahead: -1500 * time.Microsecond, Within: 20 * time.Microsecond}}},
		event.CheckpointEvent{Step: 50, Dir: "runs/tiny/checkpoints/step-00000050", Best: true, Took: 216814577, Weights: true},
		event.WarningEvent{Text: "the disk is full: \"runs\"\n"},
		event.PauseEvent{Step: 9, Paused: true},
		event.TextEvent{Step: 10, Prompt: "Once", Text: " upon a \"time\"\n"},
		event.ChangeEvent{Change: rate, Cancelled: []event.Change{old},
			Err: event.ErrStep},
		event.StallEvent{Quiet: 61 * time.Second, Status: status},
		event.RestartEvent{Err: errors.New("worker w1 failed"), Restart: 1, Most: 10, Why: "rank 1 has no shadow"},
		event.ReplaceEvent{Step: 51, Ranks: []int{1, 3}, Err: errors.New("worker w1 failed"), Halted: 30 * time.Millisecond,
			Found: 210 * time.Millisecond, Loaded: 400 * time.Millisecond, Source: event.FromShadow, Bytes: 408 << 20, KeptBytes: 1},
		event.RegroupEvent{Step: 50, Leaving: []string{"w1"}, Free: []string{"w2"}, Lost: []string{"w3"}},
		event.EndEvent{Result: result, Err: errors.New("killed")},
		event.SampleEvent{Text: "Once upon", Context: 128, PromptTokens: 2, PromptCut: 1, Tokens: 5, WindowMoves: 1},
		event.SubmittedEvent{Run: "70270f14"},
	}
}

// TestGolden: the JSON of every kind of event is that of testdata/events.jsonl, and reads back as the same event.
// docs/events.md lists exactly these keys.
func TestGolden(t *testing.T) {
	var lines bytes.Buffer
	keys := make(map[string]bool)
	for _, e := range whole() {
		noZero(t, event.Kind(e), reflect.ValueOf(e))
		line := encode(t, e)
		lines.Write(append(line, '\n'))
		got, err := event.Decode(line)
		if err != nil || !same(got, e) {
			t.Errorf("%s\nreads back as %+v, %v, want %+v", line, got, err, e)
		}
		var v any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		note(keys, event.Kind(e), v)
	}
	golden(t, "events.jsonl", lines.String())

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "events.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed, section := make(map[string]bool), ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.Trim(strings.TrimSpace(name), "`")
		} else if row := regexp.MustCompile("^\\| `([^`]+)` \\|").FindStringSubmatch(line); row != nil && section != "" {
			listed[section+" "+row[1]] = true
		}
	}
	for key := range keys {
		if !listed[key] {
			t.Errorf("docs/events.md does not list %s", key)
		}
	}
	for key := range listed {
		if !keys[key] {
			t.Errorf("docs/events.md lists %s, which no event has", key)
		}
	}
}

// note notes the keys of a kind as docs/events.md lists them. A status has its own section.
func note(keys map[string]bool, section string, v any) { noteAt(keys, section, "", v) }

func noteAt(keys map[string]bool, section, path string, v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			noteAt(keys, section, path+"[]", x)
		}
	case map[string]any:
		for key, x := range v {
			if section == "stall" && path == "" && key == "status" {
				keys["stall status"] = true
				noteAt(keys, "status", "", x)
				continue
			}
			at := strings.TrimPrefix(path+"."+key, ".")
			if path == "metrics" || path == "val_metrics" || path == "val_losses" { // named by the model's layers and the user
				continue
			}
			keys[section+" "+at] = true
			noteAt(keys, section, at, x)
		}
	}
}

// noZero reports fields without a value: the golden file must show each.
func noZero(t *testing.T, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[scheduler.Action]() {
			return
		}
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch v.Type() {
			case reflect.TypeFor[event.Snapshot](), reflect.TypeFor[event.Change](), reflect.TypeFor[event.ActionTime](),
				reflect.TypeFor[scheduler.PartTime]():
				continue // one of them has every field
			}
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s has no value", path, name)
			}
			noZero(t, path+"."+name, v.Field(i))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			t.Errorf("%s is empty", path)
		}
		for i := range v.Len() {
			noZero(t, path, v.Index(i))
		}
	}
}

func encode(t *testing.T, e event.Event) []byte {
	t.Helper()
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatalf("%T: %v", e, err)
	}
	return line
}

// same compares two events: times by the moment, errors by their text, NaN with NaN.
func same(a, b event.Event) bool {
	show := func(e event.Event) string { return fmt.Sprintf("%T ", e) + show(reflect.ValueOf(e)) }
	return show(a) == show(b)
}

func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case error:
		return "error " + x.Error()
	case float64:
		return fmt.Sprint(x)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return show(v.Elem())
	case reflect.Struct:
		var b strings.Builder
		for i := range v.NumField() {
			fmt.Fprintf(&b, "%s:%s ", v.Type().Field(i).Name, show(v.Field(i)))
		}
		return "{" + b.String() + "}"
	case reflect.Slice:
		all := make([]string, v.Len())
		for i := range all {
			all[i] = show(v.Index(i))
		}
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%#v", v.Interface())
}

// TestEmpty: events without values, and with numbers that are not finite, marshal and read back.
func TestEmpty(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, e := range []event.Event{
		event.StepEvent{},
		event.StepEvent{Record: telemetry.Record{Step: 1, Loss: &nan, GradNorm: &nan, Metrics: map[string]float64{"accuracy": nan}},
			Trace: [][]event.ActionTime{nil, nil}},
		event.CheckpointEvent{}, event.WarningEvent{}, event.PauseEvent{}, event.ChangeEvent{},
		event.ChangeEvent{Change: event.Change{Kind: event.ChangeRate, LR: nan, MinLR: nan}},
		event.RestartEvent{}, event.ReplaceEvent{}, event.EndEvent{},
		event.EndEvent{Result: event.Result{FirstValLoss: nan, LastValLoss: nan, BestValLoss: nan}},
		event.StartEvent{}, event.StartEvent{Info: event.Info{EpochSteps: nan, Epochs: nan}}, event.SampleEvent{}, event.SubmittedEvent{},
		event.StallEvent{Status: event.Status{Time: at(0), Actors: []event.Snapshot{{Doing: 77, Wait: 77, Phase: 77}}}},
	} {
		line := encode(t, e)
		got, err := event.Decode(line)
		if w, ok := got.(event.StallEvent); ok { // words that this version does not know
			if s := w.Status.Actors[0]; s.Doing.String() != "unknown" || s.Phase.String() != "unknown" {
				t.Errorf("%s: %+v", line, s)
			}
			continue
		}
		if err != nil || !same(got, e) {
			t.Errorf("%s\nreads back as\n%+v, %v, want\n%+v", line, got, err, e)
		}
	}
	line := encode(t, event.EndEvent{Result: event.Result{BestValLoss: inf, LastValLoss: nan}})
	if !bytes.Contains(line, []byte(`"val_loss":null,"best_val_loss":null`)) {
		t.Errorf("not finite: %s", line)
	}
	var r event.Result
	if err := json.Unmarshal([]byte(`{"step":3}`), &r); err != nil || r.Step != 3 || !math.IsNaN(r.LastValLoss) {
		t.Errorf("a result without losses: %+v, %v", r, err)
	}
}

// TestDecode: later kinds are known by their error, later keys and words are ignored, and bad lines are errors.
func TestDecode(t *testing.T) {
	if _, err := event.Decode([]byte(`{"event":"rebalance","to":"w3"}`)); !errors.Is(err, event.ErrKind) {
		t.Errorf("an unknown kind: %v", err)
	}
	e, err := event.Decode([]byte(`{"event":"pause","step":5,"paused":true,"why":{"a":[1]}}`))
	if err != nil || e != (event.PauseEvent{Step: 5, Paused: true}) {
		t.Errorf("an unknown key: %+v, %v", e, err)
	}
	for _, line := range []string{``, `null`, `3`, `{}`, `[]`, `{"event":3}`, `{"event":"step"}`, `{"event":"step","step":-1}`,
		`{"event":"pause","step":"x"}`,
		`{"event":"checkpoint","took_ms":"1"}`, `{"event":"step","step":1,"trace":{"ranks":[[{"action":"0X3"}]]}}`, `{"event":"pause"`,
		`{"event":"step","step":1,"trace":{"ranks":[[{"action":"99999999999F0"}]]}}`,
		`{"event":"step","step":1,"trace":{"ranks":[[{"action":"0F0","parts":[{"exchange":"F"}]}]]}}`} {
		if e, err := event.Decode([]byte(line)); err == nil || errors.Is(err, event.ErrKind) {
			t.Errorf("%s: %+v, %v", line, e, err)
		}
	}
	var p event.PauseEvent
	if err := json.Unmarshal([]byte(`{"event":"end","step":1}`), &p); err == nil {
		t.Error("an end was read as a pause")
	}
	var s event.StepEvent
	if err := json.Unmarshal([]byte(`{"step":1,"loss":2.5}`), &s); err != nil || s.Step != 1 || *s.Loss != 2.5 {
		t.Errorf("a line of metrics.jsonl: %+v, %v", s, err)
	}
	if got := event.Kind(3); got != "" {
		t.Errorf("3 is an event of the kind %q", got)
	}
	a := event.Actions{Step: 5, Phase: event.Eval, Began: at(0), Ranks: [][]event.ActionTime{{{Action: scheduler.Action{Type: scheduler.F},
		Start: at(1), End: at(2)}}, nil}}
	var b event.Actions
	if err := json.Unmarshal(encode(t, a), &b); err != nil || !same(a, b) {
		t.Errorf("%+v, %v, want %+v", b, err, a)
	}
}

// FuzzDecode: no line makes Decode panic, and what it reads, it reads again from its own JSON.
func FuzzDecode(f *testing.F) {
	for _, e := range whole() {
		line, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"event":"stall","quiet_s":1e300,"status":{"time":"0001-01-01T00:00:00Z","actors":[{"doing":"?","since_s":-1e300}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := event.Decode(line)
		if err != nil {
			return
		}
		again, err := json.Marshal(e)
		if err != nil { // a time behind the year 9999
			if !strings.Contains(err.Error(), "year outside of range") {
				t.Fatal(err)
			}
			return
		}
		if got, err := event.Decode(again); err != nil || event.Kind(got) != event.Kind(e) {
			t.Fatalf("%s\n%s: %v", line, again, err)
		}
	})
}

// TestKinds: each kind of event is in the list of Event's comment or that of the lines of engine run --json.
func TestKinds(t *testing.T) {
	text, err := os.ReadFile("events.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(text), "type Event = any")
	all := whole()
	for _, e := range all {
		if name := reflect.TypeOf(e).Name(); !strings.Contains(comment, name) {
			t.Errorf("the comment of Event does not name %s", name)
		}
	}
	if !slices.ContainsFunc(all, func(e event.Event) bool { return event.Kind(e) == "submitted" }) {
		t.Error("not all kinds are tested")
	}
}
