package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/troupe-ml/troupe/internal/show/draw"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made makes a folder with files.
func made(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const configText = "[run]\nname = \"%s\"\nsteps = 10\n[data]\ntrain = [\"a.txt\"]\n[optimizer]\nlr = %s\n"

// trainer is a checkpoint's state.
func trainer(step int, kernels, sha string) string {
	return fmt.Sprintf(`{"format_version":2,"run":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","step":%d,"tokens":%d,"kernels":%q,"train_tokens":900,
		"data":{"train":{"files":1,"file_bytes":[1000],"bytes":1000,"sha256":%q,"sampled":false}},
		"decisions":[{"step":2,"time":"2026-01-02T03:04:05Z","kind":"from_step","detail":"set aside: the checkpoint of step 4 <i>"}]}`,
		step, 64*step, kernels, sha)
}

const modelText = `{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2","n_layer":2,"n_embd":8,"n_head":2,"n_positions":8,"n_ctx":8,"vocab_size":256}`

func metrics(from, to int, loss func(int) string) string {
	var text strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&text, `{"step":%d,"loss":%s,"step_ms":%d,"tokens":%d,"peak_mem_bytes":%d}`+"\n", i, loss(i), 100+i, 64*i, 1<<20+i)
	}
	return text.String()
}

func read(t *testing.T, dir string) *Run {
	t.Helper()
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompare(t *testing.T) {
	a := made(t, map[string]string{
		"config.toml":                              fmt.Sprintf(configText, "a", "1e-3"),
		"metrics.jsonl":                            metrics(1, 8, func(i int) string { return fmt.Sprint(i) }) + `{"step":9,"lo`,
		"checkpoints/step-00000004/trainer.json":   trainer(4, "cpu-avx2", "00ff"),
		"checkpoints/step-00000004/config.json":    modelText,
		"checkpoints/step-00000004/config.toml":    fmt.Sprintf(configText, "a", "1e-3"),
		"checkpoints/step-00000004/manifest.json":  "{}",
		"checkpoints/step-00000002/trainer.json":   trainer(2, "older", "00ff"),
		"checkpoints/step-00000006/something.else": "a newer one that can't be read",
	})
	b := made(t, map[string]string{
		"config.toml": fmt.Sprintf(configText, "b", "2e-3"),
		"metrics.jsonl": metrics(1, 6, func(i int) string {
			return [...]string{"", "1", "2", "3.0000000000000004", "null", "7", "6"}[i]
		}),
		"checkpoints/step-00000004/trainer.json": trainer(4, "cpu-go", "00fe"),
		"checkpoints/step-00000004/config.json":  modelText,
	})
	d := Compare(read(t, a), read(t, b))
	if d.NoConfig ||
		fmt.Sprint(d.Config) != `[{run.name "a" "b"} {run.out "runs/a" "runs/b"} {optimizer.lr 0.001 0.002} {optimizer.min_lr 0.0001 0.0002}]` {
		t.Errorf("config: %v", d.Config)
	}
	if d.A.Step != 8 || d.A.Steps != 10 || d.A.Rows != 8 || d.B.Step != 6 {
		t.Errorf("%+v, %+v", d.A, d.B)
	}
	if !d.Data.Known || d.Data.Same || !strings.Contains(d.Data.Text, "00ff…, B 1 file, 1000 bytes, SHA-256 00fe…") {
		t.Errorf("data: %+v", d.Data)
	}
	if d.Kernels != (Agreement{Known: true, Text: "A cpu-avx2, B cpu-go"}) {
		t.Errorf("kernels: %+v", d.Kernels)
	}
	if len(d.Figures) != 1 {
		t.Fatalf("figures: %+v", d.Figures)
	}
	f := d.Figures[0]
	if f.Name != "loss" || f.Both != 6 || f.Equal != 3 || f.OnlyA != 0 || f.OnlyB != 0 || f.EndA != 8 || f.EndB != 6 ||
		*f.First != (Pair{3, 3, math.Nextafter(3, 4)}) || *f.Largest != (Pair{5, 5, 7}) || *f.Last != (Pair{6, 6, 6}) {
		t.Errorf("%+v: first %v, largest %v, last %v", f, f.First, f.Largest, f.Last)
	}
	if i := slices.IndexFunc(d.Speed, func(s SpeedDifference) bool { return s.Name == "step_ms" }); i < 0 ||
		d.Speed[i] != (SpeedDifference{"step_ms", 104.5, 103.5}) || d.Speed[i].Ratio() != 103.5/104.5 {
		t.Errorf("speed: %+v", d.Speed)
	}

	// A checkpoint of a run counts up to its step, and one elsewhere has no metrics.
	d = Compare(read(t, filepath.Join(a, "checkpoints", "step-00000004")), read(t, filepath.Join(a, "checkpoints")))
	if d.A.Step != 4 || d.Figures[0].Both != 4 || d.Figures[0].EndA != 4 || d.Figures[0].EndB != 8 || !d.Data.Same || !d.Kernels.Same ||
		len(d.Config) != 0 || d.NoConfig {
		t.Errorf("%+v", d)
	}
	moved := made(t, map[string]string{"trainer.json": trainer(4, "cpu-go", "00fe"), "config.json": modelText})
	d = Compare(read(t, moved), read(t, b))
	if !d.NoConfig || !d.Data.Same || len(d.A.Notes) != 2 || d.Figures[0].Both != 0 || d.Figures[0].OnlyB != 0 || !math.IsNaN(d.Speed[0].A) {
		t.Errorf("%+v", d)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := made(t, map[string]string{"other.txt": "x"})
	for _, path := range []string{dir, filepath.Join(dir, "other.txt"), t.TempDir()} {
		if _, err := Read(path); !errors.Is(err, ErrNoRun) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestRuins: whatever stands in a run's files, it is compared and drawn as far as it goes.
func TestRuins(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"bad rows": {"config.toml": "[[", "metrics.jsonl": "[]\n[]\n", "events.jsonl": "{\n{\n", "trace.jsonl": "x\n"},
		"nothing":  {"metrics.jsonl": ""},
		"no metric": {"config.toml": fmt.Sprintf(configText, "x", "1"), "checkpoints/step-00000001/trainer.json": `{"format_version":99}`,
			"checkpoints/step-00000001/config.json": "{"},
		"null": {"metrics.jsonl": `{"step":0,"loss":null}` + "\n", "stats.jsonl": `{"step":0,"mem_bytes":[],"layers":[{"name":"x"}]}` + "\n",
			"samples.jsonl": `{}` + "\n"},
	} {
		r := read(t, made(t, files))
		d := Compare(r, r)
		if len(d.A.Notes) == 0 {
			t.Errorf("%s: nothing is said", name)
		}
		parsed(t, pageOf(t, r))
	}
}

func pageOf(t *testing.T, r *Run) string {
	t.Helper()
	var out bytes.Buffer
	if err := Page(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const hostile = `</title></pre><script>alert(1)</script><img src=//x.example/y onerror=alert(1)>&quot;"'` + "\u202e\u0007"

// hostileRun has text with markup wherever a file can have some.
func hostileRun(t *testing.T, steps int) string {
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	quoted := string(text)
	var events, stats, samples strings.Builder
	for i := 1; i <= steps; i++ {
		if i%50 == 0 {
			fmt.Fprintf(&events, `{"time_ms":1790000000000,"step":%d,"kind":"checkpoint"}`+"\n", i)
			fmt.Fprintf(&samples, `{"step":%d,"prompt":%s,"text":%s}`+"\n", i, quoted, quoted)
			fmt.Fprintf(&stats,
				`{"step":%d,"mem_bytes":[1000000,2000000],"layers":[{"name":%s,"stage":0,"params":10,"weight_norm":%d,"grad_norm":null},{"name":"head","stage":1,"params":3,"weight_norm":1}]}`+"\n", i, quoted, i)
		}
		if i%100 == 0 {
			fmt.Fprintf(&events, `{"time_ms":1790000000000,"step":%d,"kind":"restart","text":%s}`+"\n", i, quoted)
		}
	}
	fmt.Fprintf(&events, `{"step":%d,"kind":%s,"text":%s}`+"\n", steps, quoted, quoted)
	row := func(i int) string {
		if i%97 == 0 {
			return "null,\"skipped\":true"
		}
		return fmt.Sprintf("%g,\"metrics\":{%s:%d},\"val_loss\":%d", 2+8*math.Exp(-float64(i)/99), quoted, i, i)
	}
	return made(t, map[string]string{
		"config.toml": fmt.Sprintf("[run]\nname = \"x\"\nsteps = 10\n[data]\ntrain = ['%s']\n",
			strings.NewReplacer("'", "", "\a", "").Replace(hostile)),
		"metrics.jsonl":                          metrics(1, steps, row),
		"events.jsonl":                           events.String(),
		"stats.jsonl":                            stats.String(),
		"samples.jsonl":                          samples.String(),
		"trace.jsonl":                            fmt.Sprintf(`{"step":3,"schedule":%[1]s,"table":"0F0,0B0\n","ms":[[[0,1],[1,2]]],"chunk_flops":[1],"threads":1,"clocks":[{"host":%[1]s}]}`+"\n", quoted),
		"checkpoints/step-00000004/trainer.json": trainer(4, strings.ReplaceAll(hostile, "\a", ""), "00ff"),
		"checkpoints/step-00000004/config.json":  modelText,
		"checkpoints/step-00000002.damaged/x":    "",
	})
}

func TestPage(t *testing.T) {
	text := pageOf(t, read(t, hostileRun(t, 1000)))
	if !strings.Contains(text[:4096], Mark) {
		t.Error("it is not known as a report")
	}
	counts := parsed(t, text)
	for element, least := range map[string]int{"svg": 15, "table": 4, "h2": 8, "figure": 3, "article": 10} {
		if counts[element] < least {
			t.Errorf("%d elements %s, want %d or more", counts[element], element, least)
		}
	}
	for _, want := range []string{
		"10 steps were skipped", "loss is NaN or infinite at 10 steps: 97, 194", "The run restarted 10 times",
		"resumed the run from an older step",
		"step-00000002.damaged", "Ticks on the X axis are checkpoints.", "R: restarted.", "rank 1", "Training data",
		"Step 3, the last traced step",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.ContainsAny(text, "\u202e\u0007") {
		t.Error("control characters have stayed")
	}
	script := string(draw.InlineScript)
	if again := pageOf(t, read(t, hostileRun(t, 10))); strings.Count(again, "<script") != 1 || !strings.Contains(again, script) ||
		!strings.Contains(again, "data-step=") {
		t.Error("markup has stayed, or the pipeline is not drawn")
	}
	if bare := pageOf(t, read(t, made(t, map[string]string{"metrics.jsonl": metrics(1, 3,
		func(int) string { return "1" })}))); strings.Contains(bare, "<script") || strings.Contains(bare, "script-src") {
		t.Error("there is a script and nothing to draw")
	}
}

// parsed reads a page as a browser does: it has no script but that of the pipeline and refers to nothing outside; all tables
// have headers, all pictures say what they show, and no identifier comes twice.
func parsed(t *testing.T, text string) map[string]int {
	t.Helper()
	counts, ids, refs := map[string]int{}, map[string]bool{}, []string{}
	in := html.NewTokenizer(strings.NewReader(text))
	heads := 0
	for {
		switch in.Next() {
		case html.ErrorToken:
			if !errors.Is(in.Err(), io.EOF) {
				t.Fatal(in.Err())
			}
			for _, ref := range refs {
				if !ids[ref] {
					t.Errorf("there is no %s", ref)
				}
			}
			return counts
		case html.EndTagToken:
			if name, _ := in.TagName(); string(name) == "table" && heads == 0 {
				t.Error("a table has no headers")
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			tok := in.Token()
			counts[tok.Data]++
			attr := map[string]string{}
			for _, a := range tok.Attr {
				attr[a.Key] = a.Val
				if strings.HasPrefix(a.Key, "on") || slices.Contains([]string{"src", "href", "xlink:href", "style", "action", "srcset", "data"},
					a.Key) {
					t.Errorf("%s has %s=%q", tok.Data, a.Key, a.Val)
				}
				if strings.Contains(a.Val, "//") && a.Key != "xmlns" && a.Key != "aria-label" && a.Key != "data-step" && a.Key != "content" {
					t.Errorf("%s has %s=%q", tok.Data, a.Key, a.Val)
				}
			}
			if id := attr["id"]; id != "" {
				if ids[id] {
					t.Errorf("%s comes twice", id)
				}
				ids[id] = true
			}
			refs = append(refs, strings.Fields(attr["aria-labelledby"])...)
			switch tok.Data {
			case "script":
				if in.Next(); !strings.Contains(string(draw.InlineScript), ">"+string(in.Raw())+"</script>") || attr["type"] != "module" ||
					counts["script"] > 1 {
					t.Error("there is a script")
				}
			case "img", "iframe", "object", "embed", "link", "base", "form", "a", "image", "use", "foreignobject":
				t.Errorf("there is a %s", tok.Data)
			case "table":
				heads = 0
			case "th":
				heads++
				if attr["scope"] == "" {
					t.Error("a header says not what it is for")
				}
			case "svg":
				if attr["role"] == "img" && attr["aria-labelledby"] == "" && attr["aria-label"] == "" {
					t.Error("a picture says nothing")
				}
			}
		}
	}
}
