package corpus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// TestMixture: each part has its share of every block, and its sequences come in order, whatever is asked first.
func TestMixture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(1e-6, 1e6), 1, 9).Draw(t, "weights")
		m := newMixture(rapid.Uint64().Draw(t, "seed"), weights)
		first := rapid.Int64Range(0, 5).Draw(t, "block") * mixBlock
		next := make([]int64, len(weights))
		for part := range weights {
			next[part] = m.count(first, part)
		}
		for s := first; s < first+mixBlock; s++ {
			part, n := m.at(s)
			if n != next[part] {
				t.Fatalf("sequence %d is number %d of part %d, want %d", s, n, part, next[part])
			}
			next[part]++
		}
		sum, all := 0.0, int64(0)
		for _, w := range weights {
			sum += w
		}
		for part, w := range weights {
			got := next[part] - m.count(first, part)
			if all += got; len(weights) > 1 && (got < 1 || float64(got) > w/sum*mixBlock+float64(len(weights))) {
				t.Fatalf("part %d has %d of %d, its weight is %g of %g", part, got, mixBlock, w, sum)
			}
			if next[part] != m.count(first+mixBlock, part) {
				t.Fatalf("part %d: %d sequences, counted %d", part, next[part], m.count(first+mixBlock, part))
			}
		}
		if all != mixBlock {
			t.Fatalf("%d sequences of %d", all, mixBlock)
		}
	})
}

// reader reads the sequences of a configuration as text.
type reader struct {
	t    *testing.T
	data *Data
	feed Feed
}

func openRun(t *testing.T, folder, text string) reader {
	t.Helper()
	cfg, err := config.Parse("test.toml", []byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := checkpoint.OpenFS(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	d, err := Load(cfg, nil, rundir.Talk{Ends: []int32{0}, After: []int32{0}}, nil, NewTokenStore(fsys))
	if err != nil {
		t.Fatal(err)
	}
	feed, err := FeedOf(d, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	return reader{t, d, feed}
}

func (r reader) sequence(step int64, index int) string {
	r.t.Helper()
	n := r.feed.Context
	if v, ok := r.feed.Source.(*partSource); ok {
		n = v.TrainLen(step, index)
	}
	tokens, targets := make([]int32, n), make([]int32, n)
	if err := r.feed.Train(step, index, tokens, targets); err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(tokens, targets)
}

func (r reader) close() {
	r.t.Helper()
	if err := r.data.Close(); err != nil {
		r.t.Error(err)
	}
}

// writeLines writes n rows.
func writeLines(t *testing.T, name string, n int, row func(i int) string) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(row(i) + "\n")
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStream: a stream has the same sequences after any restart, in whatever order they are asked for, and each document once an epoch.
func TestStream(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Chdir(t.TempDir())
	const head = "model.context = 24\nbatch = {sequences = 3, microbatch = 1}\n"
	writeLines(t, "pairs.jsonl", 3000, func(i int) string { return fmt.Sprintf(`{"prompt": "p%d", "completion": "c%d"}`, i, i) })
	writeLines(t, "texts.jsonl", 3000, func(i int) string { return fmt.Sprintf(`{"text": "this is text number %d"}`, i) })
	for _, name := range []string{"pairs", "texts"} {
		t.Run(name, func(t *testing.T) {
			text := head + fmt.Sprintf("data = {train = ['%s.jsonl'], format = 'documents', stream = true, shuffle_window = 100}", name)
			whole := openRun(t, t.TempDir(), text)
			folder := t.TempDir()
			const steps = 1200 // more than an epoch of pairs
			want := make([]string, 0, 3*steps)
			for step := range int64(steps) {
				for i := range 3 {
					want = append(want, whole.sequence(step+1, i))
				}
			}
			whole.close()
			for _, from := range []int{0, 7, 500, 999, 100, 1199} { // each on what the ones before have stored
				r := openRun(t, folder, text)
				for step := from; step < min(from+20, steps); step++ {
					for _, i := range []int{2, 0, 1} {
						if got := r.sequence(int64(step)+1, i); got != want[3*step+i] {
							t.Fatalf("started at %d: sequence %d of step %d is another:\n%s\n%s", from, i, step+1, got, want[3*step+i])
						}
					}
				}
				r.close()
			}
			if name == "pairs" { // 10 are validated on
				first := slices.Clone(want[:2990])
				slices.Sort(first)
				if n := len(slices.Compact(first)); n != 2990 {
					t.Errorf("the first epoch has %d documents of 2990", n)
				}
				if want[0] == want[2990] && want[1] == want[2991] {
					t.Error("the second epoch has the order of the first")
				}
			}
		})
	}
}

// TestSources: three weighted sources have the same sequences after a restart at any step.
func TestSources(t *testing.T) {
	t.Chdir(t.TempDir())
	for i, name := range []string{"a", "b", "c"} {
		writeLines(t, name+".jsonl", 200, func(k int) string { return fmt.Sprintf(`{"prompt": "%s%d", "completion": "c%d"}`, name, k, i) })
	}
	for _, stream := range []bool{false, true} {
		text := fmt.Sprintf("model.context = 24\nbatch = {sequences = 4, microbatch = 1}\n[data]\nformat = 'documents'\nstream = %v\n", stream)
		for i, name := range []string{"a", "b", "c"} {
			text += fmt.Sprintf("[[data.source]]\nname = '%s'\nfiles = ['%s.jsonl']\nweight = %d\n", name, name, i+1)
		}
		folder := t.TempDir()
		r := openRun(t, folder, text)
		var want []string
		for step := range int64(100) {
			want = append(want, r.sequence(step+1, int(step)%4))
		}
		if about := r.data.DescribeSources(4, 60_000); !strings.Contains(about, "c: 50 % of the sequences, 30,000 in this run") {
			t.Error(about)
		}
		r.close()
		r = openRun(t, folder, text)
		for _, step := range []int64{99, 50, 3} {
			if got := r.sequence(step+1, int(step)%4); got != want[step] {
				t.Errorf("step %d: %s, want %s", step+1, got, want[step])
			}
		}
		if n := r.feed.Windows; n < 3 {
			t.Errorf("%d windows of validation", n)
		}
		r.close()
	}
}

// TestStreamErrors: an error names the file and the row, each time.
func TestStreamErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	writeLines(t, "mixed.jsonl", 3000, func(i int) string {
		if i == 2999 {
			return `{"prompt": "a", "completion": "b"}`
		}
		return `{"text": "some text"}`
	})
	writeLines(t, "bad.jsonl", 3000, func(i int) string {
		if i == 2999 {
			return `{"text": 3}`
		}
		return `{"text": "some text"}`
	})
	for name, want := range map[string]string{"mixed": "mixed.jsonl, row 3000", "bad": "bad.jsonl, row 3000"} {
		r := openRun(t, t.TempDir(), fmt.Sprintf("model.context = 8\nbatch = {sequences = 1, microbatch = 1}\n"+
			"data = {train = ['%s.jsonl'], format = 'documents', stream = true, shuffle_window = 10}", name))
		tokens := make([]int32, 8)
		var err error
		for range 2 {
			err = r.feed.Train(1<<20, 0, tokens, tokens)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if err := r.feed.Train(1, 0, tokens, tokens); err != nil {
			t.Errorf("the rows before it: %v", err)
		}
		r.close()
	}
	cfg, err := config.Parse("test.toml", []byte("data = {train = ['none.jsonl'], format = 'documents', stream = true}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeLines(t, "none.jsonl", 2, func(int) string { return "" })
	if _, err := Load(cfg, nil, rundir.Talk{}, nil, nil); !errors.Is(err, data.ErrEmpty) {
		t.Errorf("no documents: %v", err)
	}
}
