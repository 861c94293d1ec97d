package config

import (
	"path/filepath"
	"testing"
)

// pathsOf are keys whose values may be paths, with a value that is one, relative.
var pathsOf = map[string]string{
	"run.out": "runs/x", "model.from": "m/x", "adapter.from": "a/x", "distill.from": "m/t", "data.train": "d/*.txt", "data.val": "d/v.txt",
	"data.tokenizer":     "t/tokenizer.json",
	"data.chat_template": "t/chat.jinja",
	"data.labels":        "l/a", "data.val_labels": "l/b",
	"pipeline.schedule": "tab.csv", "eval.files": "d/e.txt", "data.source.files": "d/s.jsonl",
}

// TestMoveTo: every key that holds a path is made absolute, none but these is touched, and names that are no paths are not.
// A key that is added to the schema as a path has to be here.
func TestMoveTo(t *testing.T) {
	for i := range schema {
		f := &schema[i]
		relative, known := pathsOf[f.key]
		if f.path && !known {
			t.Errorf("%s holds a path, of which this test knows nothing", f.key)
		}
		c := new(Config)
		if arrayOf(f.section()) != nil {
			c.makeTables(f.section(), 1)
			f = f.inTable(1)
		}
		before := f.at(c)
		text := relative
		if !known {
			text = "word"
		}
		switch p := before.(type) {
		case *string:
			*p = text
		case *[]string:
			*p = []string{text, text}
		default:
			if known {
				t.Errorf("%s is a %T", f.key, p)
			}
			continue
		}
		shared := *c.clone()
		c.MoveTo("/folder")
		want := text
		if known {
			want = filepath.Join("/folder", text)
		}
		switch p := f.at(c).(type) {
		case *string:
			if *p != want {
				t.Errorf("%s: %q, want %q", f.key, *p, want)
			}
		case *[]string:
			if (*p)[0] != want || (*p)[1] != want || (*f.at(&shared).(*[]string))[0] != text {
				t.Errorf("%s: %q, want %q; the copy %q", f.key, *p, want, *f.at(&shared).(*[]string))
			}
		}
	}
	c := new(Config)
	c.Data.Tokenizer, c.Data.ChatTemplate, c.Pipeline.Schedule, c.Run.Out = "bytes", "chatml", "1f1b", "/absolute"
	c.MoveTo("/folder")
	if c.Data.Tokenizer != "bytes" || c.Pipeline.Schedule != "1f1b" || c.Run.Out != "/absolute" {
		t.Errorf("what is no relative path became %q, %q, %q", c.Data.Tokenizer, c.Pipeline.Schedule, c.Run.Out)
	}
}

// TestSamePath: a run that is resumed with absolute paths has the same model and tokenizer.
func TestSamePath(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"m/x", "m/x", true}, {"m/x", "./m/x", true}, {"m/x", "/here/m/x", true}, {"/here/m/x", "m/x", true}, {"../m/x", "/m/x", true},
		{"m/x", "m/y", false}, {"x", "/here/ax", false}, {"/a/x", "/b/x", false}, {"m/x", "/here/x", false},
	} {
		if got := samePath(tc.a, tc.b); got != tc.same {
			t.Errorf("%q and %q: %v", tc.a, tc.b, got)
		}
		var a, b Config
		a.Model.From, b.Model.From, a.Data.Tokenizer, b.Data.Tokenizer = tc.a, tc.b, tc.a, tc.b
		if conflicts := ResumeConflicts(&a, &b); (len(conflicts) == 0) != tc.same {
			t.Errorf("%q and %q: conflicts %v", tc.a, tc.b, conflicts)
		}
	}
}
