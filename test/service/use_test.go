package service

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestEvaluate: where the windows of validation are those of a whole text, both
// give the same loss.
func TestEvaluate(t *testing.T) {
	text := testrun.Read(t, "testdata/troupe.txt")
	val := testrun.Write(t, filepath.Join(t.TempDir(), "val.txt"), text[:10*16+1]) // 10 windows
	for name, family := range testrun.Families {
		t.Run(name, func(t *testing.T) {
			out := testrun.Trained(t, append(family, "data.val="+val)...)
			want := *testrun.Records(t, out)[6].ValLoss
			for _, o := range []troupe.EvalOptions{
				{Microbatch: 1},
				{Microbatch: 3, Data: []string{val}},
				{},
			} {
				o.From = out
				got, err := troupe.Evaluate(context.Background(), o)
				if err != nil {
					t.Fatal(err)
				}
				if o.Microbatch == 1 && math.Float64bits(got.Loss) != math.Float64bits(want) || math.Abs(got.Loss-want) > 1e-12 {
					t.Errorf("%+v: loss %v, validation had %v", o, got.Loss, want)
				}
				if got.Tokens != 160 || got.Windows != 10 || got.Step != 6 || got.From != testrun.StepDir(out, 6) ||
					got.Perplexity != math.Exp(got.Loss) {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

// TestEvaluateWhole: every token but the first counts once, whatever is left for
// the last window, and however many windows go together.
func TestEvaluateWhole(t *testing.T) {
	out := testrun.Trained(t)
	text := testrun.Read(t, "testdata/troupe.txt")
	loss := func(part string, microbatch int) (sum float64, tokens int64) {
		t.Helper()
		file := testrun.Write(t, filepath.Join(t.TempDir(), "part.txt"), part)
		r, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out, Threads: 1},
			Data: []string{file}, Microbatch: microbatch})
		if err != nil {
			t.Fatal(err)
		}
		return r.Loss * float64(r.Tokens), r.Tokens
	}
	for _, n := range []int{2, 16, 17, 18, 100} {
		whole, tokens := loss(text[:n], 3)
		if tokens != int64(n-1) {
			t.Errorf("%d bytes: %d targets", n, tokens)
		}
		var parts float64
		for at := 0; at < n-1; at += 16 {
			sum, _ := loss(text[at:min(at+17, n)], 1)
			parts += sum
		}
		if math.Abs(whole-parts) > 1e-9 {
			t.Errorf("%d bytes: loss %v, window by window %v", n, whole, parts)
		}
	}
	// Without a text it is the validation text of the run, whole.
	r, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
	if err != nil || r.Tokens != 1224 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMoreValidationThanText: validation takes all windows that there are, when
// more are asked for.
func TestMoreValidationThanText(t *testing.T) {
	for _, val := range []int{17, 18, 16*11 + 1, 16*12 + 5} { // 1, 1, 11 and 12 windows
		file := testrun.Write(t, filepath.Join(t.TempDir(), "val.txt"), testrun.Read(t, "testdata/troupe.txt")[:val])
		out := filepath.Join(t.TempDir(), "out")
		run := testrun.Start(t, testrun.NewConfig(t, out, "data.val="+file, "run.eval_batches=1000", "batch.microbatch=2", "pipeline.stages=2"))
		result, _ := testrun.Finish(t, run)
		if windows := run.Info().EvalWindows; windows != (val-1)/16 {
			t.Errorf("%d bytes: %d windows", val, windows)
		}
		if math.IsNaN(result.LastValLoss) || result.LastValLoss >= result.FirstValLoss {
			t.Errorf("%d bytes: the validation loss went from %g to %g", val, result.FirstValLoss, result.LastValLoss)
		}
	}
}

// decoder opens a run's model the way another program would.
func decoder(t *testing.T, out string) (fresh func() *stages.Sequence) {
	t.Helper()
	ckpt, err := checkpoint.Open(testrun.StepDir(out, 6))
	if err != nil {
		t.Fatal(err)
	}
	text, err := ckpt.File("config.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := stages.ParseHF(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := stages.NewModel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	device, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	stream := device.NewStream("test")
	stage, err := stages.NewStage(model, stream, []stages.ChunkSpec{{Last: len(model.Symbols())}}, stages.Options{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	load := func(p *stages.Param, _ string, dst []float32) error { return ckpt.Model().Float32(p.Name, dst) }
	if err := errors.Join(stage.Load(load, false), ckpt.Close()); err != nil {
		t.Fatal(err)
	}
	return func() *stages.Sequence { // each with logits of its own
		decoder, err := stages.NewDecoder(stage)
		if err != nil {
			t.Fatal(err)
		}
		q, err := decoder.Add(cfg.Context)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
}

// TestDecoder: a sequence fed in parts to the cache has the logits of the whole
// sequence fed at once.
func TestDecoder(t *testing.T) {
	for name, family := range testrun.Families {
		t.Run(name, func(t *testing.T) {
			fresh := decoder(t, testrun.Trained(t, family...))
			ids, err := tokenizer.Bytes{}.Encode([]byte("The dancer sings")) // a context
			if err != nil {
				t.Fatal(err)
			}
			cached := fresh()
			for at := 0; at < len(ids); {
				n := min(1+at%3, len(ids)-at)
				got, err := cached.Next(ids[at : at+n])
				if err != nil {
					t.Fatal(err)
				}
				at += n
				want, err := fresh().Next(ids[:at])
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if d := math.Abs(float64(got[i] - want[i])); !(d < 1e-4) {
						t.Fatalf("after %d tokens the logit of %d is %g, at once %g", at, i, got[i], want[i])
					}
				}
			}
			if _, err := cached.Next(ids[:1]); !errors.Is(err, stages.ErrInput) {
				t.Errorf("a token beyond the context: %v", err)
			}
		})
	}
}

// TestGenerateGreedy: without a temperature each token is the likeliest one by
// the whole forward pass, also when the context has been full and the sequence
// went on from its last half.
func TestGenerateGreedy(t *testing.T) {
	for name, family := range testrun.Families {
		t.Run(name, func(t *testing.T) {
			out := testrun.Trained(t, append(family, "optimizer.lr=0.01", "data.tokenizer=chars")...)
			const prompt, tokens, context = "The king", 40, 16
			got, _ := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out},
				TextOptions: troupe.TextOptions{Prompt: prompt, Tokens: tokens}})

			tok, err := tokenizer.Unmarshal([]byte(testrun.Read(t, filepath.Join(testrun.StepDir(out, 6), "tokenizer.json"))))
			if err != nil {
				t.Fatal(err)
			}
			all, err := tok.Encode([]byte(prompt))
			if err != nil {
				t.Fatal(err)
			}
			fresh, begin := decoder(t, out), 0 // of the window in all
			for range tokens {
				if len(all)-begin > context {
					begin = len(all) - context/2
				}
				logits, err := fresh().Next(all[begin:])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, int32(slices.Index(logits, slices.Max(logits))))
			}
			if want := string(tok.Decode(all))[len(prompt):]; got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// TestGenerate: the same options give the same text; each of them counts.
func TestGenerate(t *testing.T) {
	out := testrun.Trained(t)
	o := troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out, Threads: 1},
		TextOptions: troupe.TextOptions{Prompt: "A dancer", Tokens: 50, Temperature: 1,
			Seed: 3}}
	first, pieces := testrun.Generate(t, o)
	if len(first) < 50 || pieces < 2 {
		t.Errorf("%d bytes in %d pieces", len(first), pieces)
	}
	o.Threads, o.From = 2, testrun.StepDir(out, 6)
	if again, _ := testrun.Generate(t, o); again != first {
		t.Errorf("the same options give %q, then %q", first, again)
	}
	for name, change := range map[string]func(*troupe.GenerateOptions){
		"seed":        func(o *troupe.GenerateOptions) { o.Seed = 4 },
		"temperature": func(o *troupe.GenerateOptions) { o.Temperature = 0.1 },
		"top-k":       func(o *troupe.GenerateOptions) { o.TopK = 2 },
		"prompt":      func(o *troupe.GenerateOptions) { o.Prompt = "The" },
	} {
		other := o
		change(&other)
		if text, _ := testrun.Generate(t, other); text == first {
			t.Errorf("another %s gives the same text", name)
		}
	}
	one, greedy := o, o
	one.TopK, greedy.Temperature = 1, 0
	if a, _ := testrun.Generate(t, one); a == "" {
		t.Error("nothing comes of one choice")
	} else if b, _ := testrun.Generate(t, greedy); a != b {
		t.Errorf("one choice gives %q, the likeliest are %q", a, b)
	}
	if text, _ := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out},
		TextOptions: troupe.TextOptions{Prompt: strings.Repeat("long ", 100), Tokens: 3}}); text == "" {
		t.Error("nothing comes of a prompt longer than the context")
	}
	flat := testrun.Write(t, filepath.Join(t.TempDir(), "flat.txt"), strings.ReplaceAll(testrun.Read(t, "testdata/troupe.txt"), "\n", " "))
	lineless := troupe.ModelOptions{From: testrun.Trained(t, "data.tokenizer=chars", "data.train="+flat)}
	if text, _ := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: lineless,
		TextOptions: troupe.TextOptions{Tokens: 3}}); len(text) != 3 {
		t.Errorf("without a prompt, and without a line break to begin with: %q", text)
	}
	if text, pieces := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out}}); text != "" || pieces != 0 {
		t.Errorf("no tokens are %q", text)
	}
}

// TestUseErrors: what can't be evaluated or continued is named; the class tells
// an impossible option from an unusable model.
func TestUseErrors(t *testing.T) {
	out := testrun.Trained(t, "data.tokenizer=chars")
	model := troupe.ModelOptions{From: out}
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	bare := troupe.ModelOptions{From: testrun.Foreign(t, out, testrun.Same, testrun.Same)}
	short := testrun.Write(t, filepath.Join(t.TempDir(), "short.txt"), "T")
	stop := errors.New("enough")
	evaluate := func(ctx context.Context, o troupe.EvalOptions) error {
		_, err := troupe.Evaluate(ctx, o)
		return err
	}
	write := func(ctx context.Context, o troupe.GenerateOptions) error {
		return troupe.Generate(ctx, o, func([]byte) error { return stop })
	}
	for _, tt := range []struct {
		name  string
		err   error
		want  string
		is    error
		setup bool
	}{
		{"no model", evaluate(ctx, troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: "nowhere"}}), "nowhere", nil, true},
		{"no checkpoint", write(ctx, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: "testdata"}}), "testdata",
			checkpoint.ErrNotCheckpoint, true},
		{"unknown kernels", write(ctx, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out, Kernels: "abacus"}}), "abacus", nil,
			true},
		{"no text", evaluate(ctx, troupe.EvalOptions{ModelOptions: bare}), "name a text", nil, true},
		{"no tokenizer for a text", evaluate(ctx, troupe.EvalOptions{ModelOptions: bare, Data: []string{"doc.go"}}), "tokenizer.json", nil, true},
		{"no tokenizer for a prompt", write(ctx, troupe.GenerateOptions{ModelOptions: bare}), "tokenizer.json", nil, true},
		{"too short", evaluate(ctx, troupe.EvalOptions{ModelOptions: model, Data: []string{short}}), "1 tokens", nil, true},
		{"a strange character", evaluate(ctx, troupe.EvalOptions{ModelOptions: model, Data: []string{"doc.go"}}), "doc.go, byte 0", nil, true},
		{"a strange prompt", write(ctx, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{Prompt: "χορός"}}),
			"the prompt", nil, true},
		{"a format that the run's text is not of", evaluate(ctx, troupe.EvalOptions{ModelOptions: model, Format: "uint16"}), `"uint16"`,
			troupe.ErrOptions, true},
		{"a format", evaluate(ctx, troupe.EvalOptions{ModelOptions: model, Format: "pdf"}), `"pdf"`, troupe.ErrOptions, false},
		{"tokens", write(ctx, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{Tokens: -1}}), "-1", troupe.ErrOptions,
			false},
		{"temperature", write(ctx, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{Temperature: math.NaN()}}), "NaN",
			troupe.ErrOptions, false},
		{"top-k", write(ctx, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{TopK: -3}}), "-3", troupe.ErrOptions,
			false},
		{"a reader who has enough", write(ctx, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{Tokens: 5}}), "enough",
			stop, false},
		{"no time to write", write(ended, troupe.GenerateOptions{ModelOptions: model, TextOptions: troupe.TextOptions{Tokens: 5}}), "canceled",
			context.Canceled, false},
		{"no time to read", evaluate(ended, troupe.EvalOptions{ModelOptions: model}), "canceled", context.Canceled, false},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) || tt.is != nil && !errors.Is(tt.err, tt.is) {
			t.Errorf("%s: %v, want %q in it (%v)", tt.name, tt.err, tt.want, tt.is)
		}
		if setup := new(troupe.SetupError); errors.As(tt.err, &setup) != tt.setup {
			t.Errorf("%s: %v as a *SetupError: %v, want %v", tt.name, tt.err, !tt.setup, tt.setup)
		}
	}
}

// TestCheck: a configuration is judged without its output folder.
func TestCheck(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for _, sets := range [][]string{nil, {"pipeline.stages=2"}, {"data.tokenizer=chars"}, {"model.from=" + testrun.Trained(t)}} {
		if err := troupe.Check(testrun.NewConfig(t, out, sets...)); err != nil {
			t.Errorf("%v: %v", sets, err)
		}
	}
	err := troupe.Check(testrun.NewConfig(t, out, "data.train=nowhere.txt", "data.val=nor/here/*", "pipeline.layout=L"))
	setup := new(troupe.SetupError)
	if !errors.As(err, &setup) {
		t.Fatalf("%v is no *SetupError", err)
	}
	for _, want := range []string{"nowhere.txt", "nor/here/*", "pipeline.layout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if testrun.Tree(t, out) != "" {
		t.Error("it wrote into the output folder")
	}
}

// TestResultJSON: the figures of an evaluation under the names that scripts read.
func TestResultJSON(t *testing.T) {
	text, err := json.Marshal(troupe.EvalResult{Loss: 1, Perplexity: 2, Tokens: 3, Windows: 4, Step: 5, From: "x"})
	if want := `{"loss":1,"perplexity":2,"tokens":3,"windows":4,"step":5,"from":"x"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}
