package bits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestDocumentBits: sequences of different lengths have the same bits under every layout, with frozen
// layers too, and in a run that goes on from its middle.
func TestDocumentBits(t *testing.T) {
	for k, sets := range [][]string{nil, {"model.family=llama", "device.dtype=bfloat16", `model.freeze=["embed", "0-1"]`,
		"model.tie_embeddings=false"}} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			sets = append([]string{"data.train=" + testrun.PairsOf(t, 120), "data.format=documents", "batch.sequences=16", "batch.microbatch=2"},
				sets...)
			_, _, few := testrun.Span()
			sets = append(sets, few...)
			want := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, want, sets...)
			checkClipped(t, want)
			for i, l := range layouts {
				if testrun.RaceDetector && i%12 != k || !testrun.Long && (k == 0 && i%3 != 0 || k == 1 && i%3 != 1) {
					continue // make check-bits runs all
				}
				sameUnder(t, want, l.name, append(append([]string{}, sets...), l.sets...))
			}
		})
	}
}

// TestDocumentPadding: a microbatch is as long as its longest sequence, and what fills it up changes
// no loss: a validation of sequences one by one is that of all together.
func TestDocumentPadding(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	path := testrun.PairsOf(t, 60)
	sets := []string{"data.train=" + path, "data.format=documents", "run.steps=2", "run.eval_batches=3", "model.dropout=0"}
	testrun.Train(t, out, append(sets, "batch.microbatch=1")...)
	other := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, other, append(sets, "batch.microbatch=8")...)
	a, b := testrun.Records(t, out), testrun.Records(t, other)
	near := func(x, y *float64) bool { return x != nil && y != nil && *x-*y < 1e-5 && *y-*x < 1e-5 }
	for i := range a {
		if a[i].Tokens != b[i].Tokens {
			t.Errorf("step %d: %d and %d tokens", i, a[i].Tokens, b[i].Tokens)
		}
		// The step's loss is the mean over all of its targets, however they are spread.
		if i > 0 && !near(a[i].Loss, b[i].Loss) || (i == 0 || i == len(a)-1) && !near(a[i].ValLoss, b[i].ValLoss) {
			t.Errorf("step %d: %s and %s", i, testrun.Figures(a[i]), testrun.Figures(b[i]))
		}
	}
	// What the run was validated on is found again, and any other documents.
	eval, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
	if d := eval.Loss - *a[len(a)-1].ValLoss; err != nil || eval.Windows != 6 || d > 1e-5 || d < -1e-5 {
		t.Errorf("%d documents have the loss %g, %v; the run says %g of 6", eval.Windows, eval.Loss, err, *a[len(a)-1].ValLoss)
	}
	eval, err = troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}, Data: []string{path}})
	if err != nil || eval.Windows != 60 {
		t.Errorf("%d documents, %v; want 60", eval.Windows, err)
	}
	if last := a[len(a)-1].Tokens; last >= 2*8*16 {
		t.Errorf("%d tokens in 2 steps, as if every sequence filled the context", last)
	}
}

// TestTextDocuments: texts are joined and read in windows; a run goes on with the same ones.
func TestTextDocuments(t *testing.T) {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "{\"text\": \"document %d of them says so\\n\", \"id\": %d}\n\n", i, i)
	}
	path := testrun.Write(t, filepath.Join(t.TempDir(), "texts.jsonl"), b.String())
	_, _, few := testrun.Span()
	sets := append([]string{"data.train=" + path, "data.format=documents"}, few...)
	want := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, want, sets...)
	sameUnder(t, want, "2 stages", append(sets, "pipeline.stages=2"))
}

func TestDocumentFaults(t *testing.T) {
	long := `{"text": "` + strings.Repeat("x", data.MaxLineBytes) + `"}`
	for name, c := range map[string]struct {
		text, sets, want string
	}{
		"no JSON": {"{\"text\": \"a\"}\n\n{\"text\": }\n", "", "row 3: not valid JSON"},
		"another key": {`{"content": "a"}`, "",
			`row 1: the object has "content", but needs "text", "prompt" and "completion", "messages", "conversations", or "instruction" and "output"; data.fields`},
		"no text": {`{"text": 3}`, "", `row 1: "text" is 3, but must be a string`},
		"null": {`{"prompt": "a", "completion": null}`, "",
			`the object has "completion" (null), "prompt", but needs "text"`},
		"all null":         {`{"text": null}`, "", `the object has "text" (null), but needs`},
		"no keys":          {`{}`, "", `the object has no keys, but needs`},
		"half a pair":      {`{"prompt": "a"}`, "", `needs "text"`},
		"twice":            {`{"text": "a", "text": "b"}`, "", "appears twice"},
		"a list":           {`["a"]`, "", "row 1: the line is a JSON array"},
		"no UTF-8":         {"{\"text\": \"\xff\"}", "", "UTF-8"},
		"no template":      {`{"messages": [{"role": "user", "content": "a"}]}`, "", "no chat template"},
		"a very long line": {long, "", "the limit is 67108864"},
		"empty":            {"\n\n", "", "the files have no documents"},
		"one":              {`{"prompt": "a", "completion": "b"}`, "", "1 documents leaves 0"},
		"too long": {strings.Repeat(`{"prompt": "a", "completion": "`+strings.Repeat("b", 30)+"\"}\n", 20), "data.too_long=refuse",
			"row 1) has 31 tokens, but the limit is 17"},
		"nothing to learn": {strings.Repeat(`{"prompt": "`+strings.Repeat("b", 30)+"\", \"completion\": \"a\"}\n", 20), "",
			"none of 18 documents has a token to learn"},
	} {
		t.Run(name, func(t *testing.T) {
			sets := []string{"data.train=" + testrun.Write(t, filepath.Join(t.TempDir(), "d.jsonl"), c.text), "data.format=documents"}
			if c.sets != "" {
				sets = append(sets, c.sets)
			}
			_, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), sets...), troupe.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v doesn't say %q", err, c.want)
			}
		})
	}
}

// TestConversations: messages are read by the template of the model that a run starts from, and what
// the assistant says is learned.
func TestConversations(t *testing.T) {
	out := filepath.Join(t.TempDir(), "base")
	testrun.Train(t, out)
	from := testrun.CopyTree(t, testrun.StepDir(out, 6))
	for _, name := range []string{"manifest.json", "config.toml", "trainer.json", "optimizer.safetensors"} {
		_ = os.Remove(filepath.Join(from, name))
	}
	testrun.Write(t, filepath.Join(from, "chat_template.jinja"), "{% for m in messages %}{{ m.role[0] }}{{ m.content }}.{% endfor %}")
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "{\"messages\": [{\"role\": \"user\", \"content\": \"%c\"}, {\"role\": \"assistant\", \"content\": %q}]}\n", 'a'+i%26,
			strings.Repeat("z", i%5+1))
	}
	sets := []string{"model.from=" + from, "data.train=" + testrun.Write(t, filepath.Join(t.TempDir(), "talk.jsonl"), b.String()),
		"data.format=documents"}
	want := filepath.Join(t.TempDir(), "out")
	cfg := testrun.FromConfig(t, from, "data.train="+strings.TrimPrefix(sets[1], "data.train="), "data.format=documents", "run.out="+want)
	result, _ := testrun.Finish(t, testrun.Start(t, cfg))
	if !(result.LastValLoss < result.FirstValLoss) {
		t.Errorf("the validation loss went from %g to %g", result.FirstValLoss, result.LastValLoss)
	}
}
