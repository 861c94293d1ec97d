package propose

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
)

// texts are files of each kind.
var texts = map[string]string{
	"prose.txt":      strings.Repeat("A stage of the pipeline holds some layers of the model. ", 400),
	"chinese.txt":    chinese(),
	"short.txt":      "abc",
	"texts.jsonl":    strings.Repeat(`{"text": "A pipeline has stages, and a stage has layers."}`+"\n", 50),
	"pairs.jsonl":    strings.Repeat(`{"prompt": "What is a stage? ", "completion": "A part."}`+"\n", 50),
	"alpaca.jsonl":   strings.Repeat(`{"instruction": "Say it.", "input": "", "output": "A part."}`+"\n", 50),
	"chat.jsonl":     `{"messages": [{"role": "user", "content": "Hello"}]}` + "\n",
	"odd.jsonl":      `{"title": "a", "body": "b"}` + "\n",
	"plain.jsonl":    "not json\n",
	"torn.jsonl":     `{"text": "a"}` + "\n{\"text\": \n",
	"numbers.jsonl":  strings.Repeat(`{"x": [1, 2], "label": 0}`+"\n"+`{"x": [2, 1], "label": 1}`+"\n", 20),
	"array.json":     `[{"text": "a"}]`,
	"classes.csv":    "width,height,species\n" + strings.Repeat("1,2,a\n2,1,b\n", 30),
	"prices.csv":     "1.5;200;17.25\n" + numbered(200, "%[1]d;%[1]d;%[1]d.5\n"),
	"names.csv":      "a,b\nx,y\n",
	"endless.csv":    "a,b,y\n" + strings.Repeat("1,+Inf,0\n2,3,1\n", 30),
	"long.csv":       "a,y\n" + strings.Repeat("1,0\n2,1\n", 50_000),
	"ids.bin":        ids(1000, 2),
	"wide.bin":       ids(1000, 4),
	"odd.bin":        "abc",
	"array.npy":      "\x93NUMPY\x01\x00",
	"zeros.txt":      "abc\x00def" + strings.Repeat("x", 300),
	"train.csv":      "a,b,y\n" + strings.Repeat("1,2,0\n2,1,1\n", 30),
	"test.csv":       "a,b,y\n1,2,0\n",
	"a-idx3-ubyte":   "\x00\x00\x08\x02\x00\x00\x00\x04\x00\x00\x00\x02" + "12345678",
	"a-idx1-ubyte":   "\x00\x00\x08\x01\x00\x00\x00\x04" + "\x00\x01\x00\x01",
	"sub/x/deep.txt": strings.Repeat("Deep in a folder. ", 60),
}

func chinese() string {
	var b strings.Builder
	for i := range 3000 {
		b.WriteRune(rune(0x4e00 + i%1000))
	}
	return b.String()
}

func numbered(n int, line string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

func ids(n, size int) string {
	b := make([]byte, n*size)
	for i := range n {
		if size == 2 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(i*37%5000))
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], uint32(i*37%90000))
		}
	}
	return string(b)
}

// TestFor: each proposal is a valid configuration, short and with every key, and has these lines.
func TestFor(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range texts {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		patterns string
		want     []string // lines of the config, or of the error
	}{
		{"", []string{`train = ["data/*.txt"]`, "steps = 1800"}},
		{"prose.txt", []string{`name = "prose"`, `tokenizer = "chars"`, `context = 128`, "steps = 200"}},
		{"chinese.txt", []string{`tokenizer = "bytes"`}},
		{"short.txt", []string{"3 bytes"}},
		{"texts.jsonl", []string{`format = "documents"`, `tokenizer = "bytes"`}},
		{"pairs.jsonl", []string{`format = "documents"`, "val_fraction = 0.2", "context = 64"}},
		{"alpaca.jsonl", []string{`format = "documents"`, `chat_template = "zephyr"`}},
		{"chat.jsonl", []string{"engine init --from MODEL --data 'chat.jsonl'"}},
		{"odd.jsonl", []string{`odd.jsonl, row 1: the object has "body", "title"`}},
		{"plain.jsonl", []string{"plain.jsonl, row 1 is not a JSON object"}},
		{"torn.jsonl", []string{"torn.jsonl, row 2 is not a JSON object"}},
		{"numbers.jsonl", []string{`format = "jsonl"`, `label = "label"`, `family = "mlp"`}},
		{"array.json", []string{"jq -c '.[]'"}},
		{"classes.csv", []string{`label = "species"`, `family = "mlp"`}},
		{"prices.csv", []string{`separator = ";"`, "header = false", `targets = ["3"]`, "scale = 0.005"}},
		{"names.csv", []string{`names.csv: no column except "b" has numbers alone`}},
		{"endless.csv", []string{`features = ["a"]`}},
		{"long.csv", []string{"CSV, 99,996 rows"}},
		{"ids.bin", []string{`format = "uint16"`, "vocab = 5056"}},
		{"wide.bin", []string{`format = "uint32"`}},
		{"odd.bin", []string{"3 bytes, an odd number"}},
		{"array.npy", []string{"is a NumPy array"}},
		{"zeros.txt", []string{"has zero bytes"}},
		{"train.csv test.csv", []string{`train = ["train.csv"]`, `val = ["test.csv"]`, `label = "y"`}},
		{"a-idx1-ubyte a-idx3-ubyte", []string{`train = ["a-idx3-ubyte"]`, `labels = ["a-idx1-ubyte"]`}},
		{"a-idx1-ubyte prose.txt", []string{"give files of one kind"}},
		{"prose.txt classes.csv", []string{`train = ["prose.txt", "classes.csv"]`, `tokenizer = "chars"`}},
		{"sub", []string{`train = ["sub"]`, `name = "sub"`, "context = 16"}},
		{"nowhere", []string{`"nowhere" does not exist`}},
	} {
		p, err := For(Options{Patterns: strings.Fields(tt.patterns)})
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			for _, config := range [][]byte{config.Template(p.Settings...), config.Outline([]string{p.About}, p.Settings)} {
				text = string(config)
				check(t, tt.patterns, config)
			}
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q:\n%s", tt.patterns, want, text)
			}
		}
	}
}

func check(t *testing.T, name string, text []byte) {
	t.Helper()
	if _, err := config.Parse("config.toml", text, nil, nil); err != nil {
		t.Errorf("%s: %v:\n%s", name, err, text)
	}
}

// FuzzFor: whatever a file holds, the proposal is a valid configuration, or an error.
func FuzzFor(f *testing.F) {
	for name, text := range texts {
		f.Add(filepath.Base(name), []byte(text[:min(len(text), 200)]))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		ext := filepath.Ext(name)
		if len(ext) > 12 || strings.ContainsAny(ext, "/\\\x00") {
			ext = ""
		}
		path := filepath.Join(dir, "f"+ext)
		if os.WriteFile(path, content, 0o644) != nil {
			return
		}
		p, err := For(Options{Patterns: []string{path}})
		if err != nil {
			if !errors.Is(err, ErrData) && strings.Contains(err.Error(), "runtime error") {
				t.Fatal(err)
			}
			return
		}
		check(t, name, config.Outline([]string{p.About}, p.Settings))
	})
}
