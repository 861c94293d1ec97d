package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDrawings runs the commands of docs/drawings.txt and compares what they draw with the files in docs.
func TestDrawings(t *testing.T) {
	list, err := os.ReadFile(filepath.Join("..", "docs", "drawings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string]bool)
	for line := range strings.Lines(string(list)) {
		args := strings.Fields(line)
		out := slices.Index(args, "--out") + 1
		if len(args) == 0 || args[0] != "engine" || out == 0 || out == len(args) {
			continue // a comment
		}
		for i, arg := range args {
			if strings.HasPrefix(arg, "docs/") {
				args[i] = filepath.Join("..", filepath.FromSlash(arg))
			}
		}
		golden := args[out]
		drawn[golden] = true
		args[out] = filepath.Join(t.TempDir(), "drawing.svg")
		var errs bytes.Buffer
		if code := run(args[1:], io.Discard, &errs); code != 0 {
			t.Errorf("%s: exit status %d: %s", strings.TrimSpace(line), code, errs.String())
			continue
		}
		got, err := os.ReadFile(args[out])
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Errorf("%v: make drawings", err)
		} else if !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
			t.Errorf("%s is not what this command draws: %s: run make drawings, and look at the difference", golden, strings.TrimSpace(line))
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "docs", "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !drawn[file] {
			t.Errorf("%s: no command of docs/drawings.txt draws it", file)
		}
	}
}
