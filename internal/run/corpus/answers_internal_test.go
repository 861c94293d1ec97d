package corpus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

func answerReader(t testing.TB, loss string) *documentReader {
	t.Helper()
	talk := rundir.Talk{Template: "{% for m in messages %}{{ m.role[0] }}{{ m.content }}.{% endfor %}"}
	r, err := newDocumentReader(tokenizer.Bytes{}, talk, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.loss = loss
	return r
}

// show writes a document with its learned ids in upper case.
func show(d data.Document) string {
	var b strings.Builder
	for i, id := range d.IDs {
		text := string(id)
		if d.Learn[i] {
			text = strings.ToUpper(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

func readLines(t testing.TB, loss, text string) ([]data.Document, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := data.ReadText([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	return readAll(all, answerReader(t, loss))
}

// readAll reads the documents of a text.
func readAll(text *data.Text, r *documentReader) (all []data.Document, err error) {
	docs, err := readDocuments(text, r)
	if err != nil {
		return nil, err
	}
	for i := range docs.Len() {
		d, err := docs.Read(i)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// TestAnswers: of a prompt with an answer, the answer alone is learned; the chosen one comes first. This template has no generation
// prompt, so the whole turn is learned.
func TestAnswers(t *testing.T) {
	said := func(role, text string) string { return fmt.Sprintf(`{"role": %q, "content": %q}`, role, text) }
	for name, c := range map[string]struct {
		line string
		want []string
	}{
		"texts": {`{"prompt": "ab", "chosen": "cd", "rejected": "e"}`, []string{"abCD", "abE"}},
		"messages": {`{"prompt": [` + said("user", "q") + `], "chosen": [` + said("assistant", "x") + `], "rejected": [` +
			said("assistant", "yz") + `]}`, []string{"uq.AX.", "uq.AYZ."}},
		"messages without a prompt": {`{"chosen": [` + said("user", "q") + `,` + said("assistant", "p") + `,` + said("user", "r") + `,` +
			said("assistant", "x") + `], "rejected": [` + said("user", "q") + `,` + said("assistant", "p") + `,` + said("user", "r") + `,` +
			said("assistant", "z") + `]}`, []string{"uq.ap.ur.AX.", "uq.ap.ur.AZ."}},
		"messages that repeat the prompt": {`{"prompt": "q", "chosen": [` + said("user", "q") + `,` + said("assistant", "x") +
			`], "rejected": [` + said("user", "q") + `,` + said("assistant", "z") + `]}`, []string{"uq.AX.", "uq.AZ."}},
	} {
		docs, err := readLines(t, stages.DPO, c.line)
		var got []string
		for _, d := range docs {
			got = append(got, show(d))
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// TestAnswerFaults: messages that are no answers are one error with file and row.
func TestAnswerFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"prompt": "q", "chosen": [{"role": "assistant", "content": "x"}], "rejected": [{"role": "assistant", "content": "y"}]}`,
			`"prompt" is a text, but`},
		{`{"prompt": [{"role": "user", "content": "q"}], "chosen": "x", "rejected": "y"}`, `"chosen" must be a list of messages`},
		{`{"chosen": [{"role": "assistant", "content": "x"}], "rejected": "y"}`, `"rejected" must be a list of messages`},
		{`{"chosen": [{"role": "assistant", "content": "x"}], "rejected": [{"role": "assistant", "content": " "}]}`, `"rejected" is empty`},
		{`{"chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "y"}]}`, `"chosen" has no token to learn`},
		{`{"chosen": [3], "rejected": [{"role": "user", "content": "y"}]}`, `"chosen": `},
		{`{"chosen": 3, "rejected": 4, "prompt": "q"}`, `"chosen" is 3`},
	} {
		text, want := c.text, c.want
		if _, err := readLines(t, stages.DPO, text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Count(err.Error(), "a.jsonl, row 1") != 1 {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestOthersAnswers: for KTO each line is followed by its prompt with the answer of the line before.
func TestOthersAnswers(t *testing.T) {
	docs, err := readLines(t, stages.KTO, `{"prompt": "a", "completion": "xx", "label": true}
{"prompt": "bb", "completion": "y", "label": false}
{"prompt": "c", "completion": "zzz", "label": true}`)
	var got []string
	for _, d := range docs {
		got = append(got, fmt.Sprintf("%s %v %d", show(d), d.Good, d.Row))
	}
	want := []string{"aXX true 1", "aZZZ true 1", "bbY false 2", "bbXX false 2", "cZZZ true 3", "cY true 3"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for text, want := range map[string]string{
		`{"prompt": "a", "completion": "x", "label": true}`: "at least 2 lines",
		`{"prompt": "a", "completion": "x"}`:                `also needs "label"`,
		`{"prompt": "a", "completion": "x", "label": 1}`:    `"label" must be true for a good completion, or false`,
		`{"prompt": "a", "completion": " ", "label": true}`: `"completion" is empty`,
	} {
		if _, err := readLines(t, stages.KTO, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestAnswerSource: both sequences of a pair are in order and side by side, each pair comes once an epoch, and a fraction for
// validation takes pairs.
func TestAnswerSource(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pairs, perStep := rapid.IntRange(3, 20).Draw(rt, "pairs"), 2*rapid.IntRange(1, 6).Draw(rt, "pairs of a step")
		var all []data.Document
		for i := range 2 * pairs {
			all = append(all, data.Document{IDs: []int32{int32(i), int32(i)}, Learn: []bool{true, true}, Row: i / 2})
		}
		docs, err := data.HoldDocuments(all, 256)
		if err != nil {
			rt.Fatal(err)
		}
		train, val, err := splitAnswers(docs, 0.3)
		if err != nil {
			rt.Fatal(err)
		}
		for _, part := range []*data.Documents{train, val} {
			for i := 0; i < part.Len(); i += 2 {
				a, err := part.Read(i)
				b, err2 := part.Read(i + 1)
				if err := errors.Join(err, err2); err != nil || a.IDs[0]%2 != 0 || b.IDs[0] != a.IDs[0]+1 {
					rt.Fatalf("documents %d and %d are %v and %v, %v", i, i+1, a.IDs, b.IDs, err)
				}
			}
		}
		r, _, err := fitAnswers(train, 8, "cut", true)
		if err != nil {
			rt.Fatal(err)
		}
		s := &answerSource{train: r, reference: &Reference{}, seed: 3, sequences: int64(perStep)}
		seen := make(map[int]int)
		for n := range r.Len() {
			at := s.record(int64(n/perStep)+1, n%perStep)
			seen[at]++
			if n%2 == 1 && at != s.record(int64(n/perStep)+1, n%perStep-1)+1 || at%2 != n%2 {
				rt.Fatalf("sequence %d is record %d", n, at)
			}
		}
		if len(seen) != r.Len() {
			rt.Fatalf("an epoch of %d sequences has %d records", r.Len(), len(seen))
		}
		if _, err := s.TrainReference(1, 0); err == nil {
			rt.Fatal("there is a log-probability before the reference model has computed it")
		}
	})
}

// TestAlikeAnswers: answers that are the same where they are cut are one error with the first of their places and their number, also if
// only what is not learned is cut.
func TestAlikeAnswers(t *testing.T) {
	const context = 3 // 4 ids
	learned := func(ids int) data.Document {
		d := data.Document{Learn: make([]bool, ids)}
		for i := range ids {
			d.IDs = append(d.IDs, int32(i))
			d.Learn[i] = i > 0 && i <= context
		}
		return d
	}
	for _, c := range []struct {
		name    string
		lengths [][2]int // of the answers of each line
		want    string   // "": no error
	}{
		{"both end before the cut", [][2]int{{3, 4}, {4, 3}, {2, 3}}, ""},
		{"one is shorter where the other is cut", [][2]int{{3, 6}, {6, 3}}, ""},
		{"the first is cut", [][2]int{{2, 3}, {5, 4}},
			"a.jsonl, row 2: the answers differ only after the context of 3 tokens, where they are cut; raise model.context, or remove the line"},
		{"the second is cut in what is not learned", [][2]int{{2, 3}, {4, 5}}, "a.jsonl, row 2: the answers differ only after the context"},
		{"both are cut", [][2]int{{5, 6}}, "a.jsonl, row 1: the answers differ only after the context"},
		{"two lines", [][2]int{{4, 5}, {2, 3}, {5, 4}}, "the answers of 2 lines differ only after the context of 3 tokens, where they are cut: " +
			"a.jsonl, row 1; a.jsonl, row 3; raise model.context, or remove the lines"},
		{"many lines", slices.Repeat([][2]int{{4, 5}}, 7), "the answers of 7 lines differ only after the context of 3 tokens, " +
			"where they are cut: a.jsonl, row 1; a.jsonl, row 2; a.jsonl, row 3; a.jsonl, row 4; a.jsonl, row 5; and 2 more; " +
			"raise model.context, or remove the lines"},
	} {
		var all []data.Document
		for i, line := range c.lengths {
			for _, n := range line {
				d := learned(n)
				d.File, d.Row = "a.jsonl", i+1
				all = append(all, d)
			}
		}
		docs, err := data.HoldDocuments(all, 256)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = fitAnswers(docs, context, "cut", true)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if _, _, err := fitAnswers(docs, context, "cut", false); err != nil {
			t.Errorf("%s, for a loss that compares no pairs: %v", c.name, err)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, line := range []string{`{"prompt": "a", "chosen": "b", "rejected": "c"}`, `{"prompt": "a", "completion": "b", "label": true}`,
		`{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected": [{"role": "user"}]}`,
		`{"prompt": [], "chosen": [], "rejected": []}`, `{"chosen": [{}], "rejected": [{}]}`} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	f.Fuzz(func(t *testing.T, line []byte, kto bool) {
		loss := stages.DPO
		if kto {
			loss = stages.KTO
		}
		r := answerReader(t, loss)
		to := make([]data.Document, r.perLine())
		if r.readInto(to, line) != nil {
			return
		}
		for _, d := range to {
			if len(d.IDs) != len(d.Learn) || firstTarget(d) < 1 || firstTarget(d) >= len(d.IDs) {
				t.Errorf("%+v", d)
			}
		}
	})
}
