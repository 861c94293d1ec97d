package samples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestNotText: files of CSV and JSON lines in another encoding or format are refused by its name; compressed ones are
// known by their content.
func TestNotText(t *testing.T) {
	wide := func(text string) string { return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") + "\x00" }
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, format, content, says string }{
		{"utf16.csv", "csv", wide("a,label\n1,0\n"), "utf16.csv is UTF-16 text (little-endian)"},
		{"utf16.jsonl", "jsonl", wide(`{"x":[1],"label":0}`), "utf16.jsonl is UTF-16 text"},
		{"data.csv", "csv", "PK\x03\x04....", "data.csv is a ZIP archive"},
		{"data.csv.gz", "csv", "a,label\n1,0\n", "has the name of a file compressed with gzip"},
		{"lone.jsonl", "jsonl", "{\"x\":[1],\"label\":\"a\"}\n{\"x\":[1],\"label\":\"\\ud800\"}\n",
			"lone.jsonl, line 2: malformed data: not valid JSON: \\ud800 at byte 19 is half of a surrogate pair"},
		{"a.csv.zst", "csv", string(w.EncodeAll([]byte("\ufeffa,label\n1,0\n"), nil)), ""},
		{"a.csv", "csv", string(w.EncodeAll([]byte("a,label\n1,0\n"), nil)), ""},
		{"mark.csv", "csv", "\ufeffa,label\n1,0\n", ""},
		{"mark.jsonl", "jsonl", "\ufeff{\"x\":[1],\"label\":0}\n", ""},
	} {
		file := filepath.Join(t.TempDir(), tt.name)
		if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(Options{Format: tt.format, Header: tt.format == "csv", Files: []string{file}, Label: "label"})
		switch {
		case tt.says == "" && (err != nil || d.Len() != 1):
			t.Errorf("%s: %v", tt.name, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: %v doesn't say %q", tt.name, err, tt.says)
		}
	}
}
