package corpus

import (
	"testing"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// FuzzDocument: no line panics, and what is read of one has as many marks as ids.
func FuzzDocument(f *testing.F) {
	for _, line := range []string{
		`{"text": "a"}`, `{"prompt": "a", "completion": "b"}`,
		`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`,
		`{"text": null}`, `{"text": "a", "text": "b"}`, `[1]`, `{"messages": {}}`,
		`{"messages": [{"role": "assistant", "content": [{"type": "text"}]}]}`,
		`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "c"}`,
		`{"conversations": [{"role": "user", "content": "a", "from": 3}]}`, `{"instruction": "a", "input": "", "output": "b"}`,
		`{"instruction": "a", "output": "b", "history": [["c", "d"]]}`, `{"q": "a", "completion": "b"}`,
		`{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}`,
	} {
		f.Add([]byte(line))
	}
	r, err := newDocumentReader(tokenizer.Bytes{},
		rundir.Talk{Template: "{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}", Ends: []int32{0}}, "",
		[]string{"prompt=q"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		d, err := r.read(line)
		if err == nil && len(d.IDs) != len(d.Learn) {
			t.Errorf("%d ids and %d marks", len(d.IDs), len(d.Learn))
		}
	})
}
