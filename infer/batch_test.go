package infer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// model writes a small model with more positions than the longest text here.
func model(t *testing.T) string {
	t.Helper()
	c := testrun.TinyModels["llama"]
	c.Context = 96
	return testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
}

func options(i int) infer.TextOptions {
	o := infer.TextOptions{Prompt: strings.Repeat(fmt.Sprintf("text %d, ", i), 1+i%7), Tokens: 5 + 9*i%60, Seed: uint64(i),
		IgnoreEnd: i%2 == 0}
	switch i % 4 {
	case 1:
		o.Temperature = 1
	case 2:
		o.Temperature, o.TopK, o.RepetitionPenalty = 0.7, 5, 1.3
	case 3:
		o.Temperature, o.TopP, o.Stop = 1.5, 0.9, []string{"a"}
	}
	return o
}

// TestBatch: texts that are generated at once, more than fit and of all lengths, are those that a Generator gives one by one.
func TestBatch(t *testing.T) {
	defer goleak.VerifyNone(t)
	from := model(t)
	g, err := infer.OpenGenerator(infer.ModelOptions{From: from})
	if err != nil {
		t.Fatal(err)
	}
	b, err := infer.OpenBatch(infer.ModelOptions{From: from}, infer.BatchOptions{Texts: 3})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		text   string
		report infer.GenerateReport
	}
	generate := func(i int, with func(context.Context, infer.TextOptions, func([]byte) error) error) (r result) {
		var text strings.Builder
		o := options(i)
		o.Report = &r.report
		if err := with(t.Context(), o, func(p []byte) error { text.Write(p); return nil }); err != nil {
			t.Errorf("text %d: %v", i, err)
		}
		r.text = text.String()
		return r
	}
	const n = 20
	var all sync.WaitGroup
	var got [n]result
	for i := range n {
		all.Go(func() { got[i] = generate(i, b.Generate) })
	}
	all.Wait()
	for i := range n {
		if want := generate(i, g.Generate); got[i] != want {
			t.Errorf("text %d is %q, %+v; one by one it is %q, %+v", i, got[i].text, got[i].report, want.text, want.report)
		}
	}
	if s := b.Stats(); s.Texts != n || s.Running != 0 || s.Waiting != 0 || s.Tokens == 0 || s.PromptTokens == 0 {
		t.Errorf("counts: %+v", s)
	}
	if err := errors.Join(b.Close(), b.Close(), g.Close()); err != nil {
		t.Error(err)
	}
	if err := b.Generate(t.Context(), options(0), nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed one: %v", err)
	}
}

// TestBatchEnds: a text ends when its caller leaves, when its writer fails and when the batch is closed; the others continue.
func TestBatchEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	b, err := infer.OpenBatch(infer.ModelOptions{From: model(t)}, infer.BatchOptions{Texts: 2, Waiting: 1})
	if err != nil {
		t.Fatal(err)
	}
	endless := infer.TextOptions{Prompt: "x", Tokens: 1 << 40, IgnoreEnd: true, Temperature: 1}
	began, full := make(chan struct{}, 8), errors.New("the disk is full")
	start := func(ctx context.Context, fails error) chan error {
		end, once := make(chan error, 1), sync.Once{}
		go func() {
			end <- b.Generate(ctx, endless, func([]byte) error {
				once.Do(func() { began <- struct{}{} })
				return fails
			})
		}()
		return end
	}
	ctx, leave := context.WithCancel(t.Context())
	stays, leaves := start(t.Context(), nil), start(ctx, nil)
	<-began
	<-began
	// Two run, so one waits, and there is no room for another one.
	waits, stop := context.WithCancel(t.Context())
	waiting := start(waits, nil)
	for b.Stats().Waiting == 0 {
	}
	if err := b.Generate(t.Context(), endless, nil); !errors.Is(err, infer.ErrBusy) || !strings.Contains(err.Error(), "1, the limit") {
		t.Errorf("one too many: %v", err)
	}
	stop()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("one that leaves while it waits: %v", err)
	}
	leave()
	if err := <-leaves; !errors.Is(err, context.Canceled) {
		t.Errorf("one that leaves: %v", err)
	}
	if err := <-start(t.Context(), full); !errors.Is(err, full) {
		t.Errorf("one whose writer fails: %v", err)
	}
	long := infer.TextOptions{Prompt: strings.Repeat("x", 97), Tokens: 3, Fit: true}
	if err := b.Generate(t.Context(), long, nil); !errors.Is(err, infer.ErrContext) ||
		!strings.Contains(err.Error(), "at least 97 tokens") {
		t.Errorf("a prompt that does not fit: %v", err)
	}
	var r infer.GenerateReport
	fits := infer.TextOptions{Prompt: strings.Repeat("x", 90), Tokens: 50, Fit: true, IgnoreEnd: true, Report: &r}
	if err := b.Generate(t.Context(), fits, func([]byte) error { return nil }); err != nil || r.Tokens != 7 || r.WindowMoves != 0 ||
		r.Finish != infer.FinishLength {
		t.Errorf("a text up to the end of the context: %+v, %v", r, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-stays; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("one in progress when the batch is closed: %v", err)
	}
}

// TestBatchInside: what only tests in the package can see.
func TestBatchInside(t *testing.T) {
	defer goleak.VerifyNone(t)
	b, err := infer.OpenBatch(infer.ModelOptions{From: model(t)}, infer.BatchOptions{Texts: 1, Waiting: 1})
	if err != nil {
		t.Fatal(err)
	}
	infer.CheckPromised(t, b)
	infer.CheckReserves(t, b)
}

// TestDefaults: generation_config.json sets what is not given; keys without effect are named, wrong ones refused.
func TestDefaults(t *testing.T) {
	given := func(names ...string) func(string) bool {
		return func(name string) bool { return strings.Contains(strings.Join(names, " "), name) }
	}
	for _, c := range []struct {
		file          string
		given         string
		want          infer.TextOptions
		warning, says string
	}{
		{file: `{}`, want: infer.TextOptions{Tokens: 200, Temperature: 0.8}},
		{file: `{"do_sample": true, "temperature": 0.6, "top_k": 20.0, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1,
			"max_new_tokens": 64,
			"eos_token_id": [1, 2], "num_beams": 1.0, "top_h": null, "stop_strings": "END"}`,
			want: infer.TextOptions{Tokens: 64, Temperature: 0.6, TopK: 20, TopP: 0.95, MinP: 0.05, RepetitionPenalty: 1.1, Stop: []string{"END"}}},
		{file: `{"temperature": 0.6, "top_k": 20, "max_new_tokens": 64}`, given: "tokens top-k",
			want: infer.TextOptions{Tokens: 200, Temperature: 0.6}},
		{file: `{"do_sample": true}`, want: infer.TextOptions{Tokens: 200, Temperature: 1}},
		{file: `{"do_sample": false, "temperature": 0.6, "top_k": 5}`, want: infer.TextOptions{Tokens: 200}},
		{file: `{"do_sample": false}`, given: "top-p", want: infer.TextOptions{Tokens: 200, Temperature: 0.8}},
		{file: `{"num_beams": 4, "suppress_tokens": [1], "sampling": "x", "max_length": 20}`,
			want:    infer.TextOptions{Tokens: 200, Temperature: 0.8},
			warning: `num_beams = 4, sampling = "x", suppress_tokens = [1]`},
		{file: `{"temperature": "hot"}`, says: `temperature is "hot": it must be a number from 0`},
		{file: `{"top_p": 1.5}`, says: "top_p"},
		{file: `{"top_k": 1e300}`, says: "top_k"},
		{file: `{"top_k": -1}`, says: "top_k"},
		{file: `{"top_k": 0.5}`, says: "top_k"},
		{file: `{"max_new_tokens": 0}`, says: "max_new_tokens"},
		{file: `{"repetition_penalty": 0}`, says: "repetition_penalty"},
		{file: `{"do_sample": 1}`, says: "do_sample"},
		{file: `{"stop_strings": [""]}`, says: "stop_strings"},
		{file: `{"top_k": 1, "top_k": 2}`, says: "top_k"},
		{file: `[`, says: "generation_config.json"},
	} {
		c2 := testrun.TinyModels["llama"]
		dir := testrun.Directory(t, c2, testrun.TensorsOf(t, c2), nil)
		testrun.Write(t, filepath.Join(dir, "generation_config.json"), c.file)
		g, err := infer.OpenGenerator(infer.ModelOptions{From: dir})
		var d infer.Defaults
		if err == nil {
			d, err = g.Defaults()
			defer func() { _ = g.Close() }()
		}
		if c.says != "" {
			var setup *infer.SetupError
			if !errors.As(err, &setup) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "generation_config.json") {
				t.Errorf("%s: %v, want %q", c.file, err, c.says)
			}
			continue
		}
		got := infer.TextOptions{Tokens: 200, Temperature: 0.8}
		d.Apply(&got, given(strings.Fields(c.given)...))
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) || !strings.Contains(d.Warning, c.warning) || c.warning == "" &&
			d.Warning != "" {
			t.Errorf("%s: %+v, %q, %v; want %+v", c.file, got, d.Warning, err, c.want)
		}
	}
}
