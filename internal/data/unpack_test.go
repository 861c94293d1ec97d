package data_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/troupe-ml/troupe/internal/data"
)

// TestUnpack: compressed files are the text that they hold; damaged ones are errors.
func TestUnpack(t *testing.T) {
	text := strings.Repeat("some text\nof lines\n", 1000)
	var gz, zst bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write([]byte(text)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file("a.txt", []byte(text))
	got, err := data.ReadText([]string{file("b.txt.gz", gz.Bytes()), plain, file("c.jsonl.zst", zst.Bytes())})
	if err != nil || string(got.Bytes()) != text+text+text {
		t.Fatalf("%d bytes, %v", len(got.Bytes()), err)
	}
	rows := 0
	if err := got.Lines(func(string, int, []byte) error { rows++; return nil }); err != nil || rows != 6000 {
		t.Errorf("%d lines, %v", rows, err)
	}
	for name, content := range map[string][]byte{
		"cut.gz": gz.Bytes()[:gz.Len()/2], "cut.zst": zst.Bytes()[:zst.Len()/2], "other.gz": []byte(text), "other.zst": []byte(text),
		"empty.gz":   {},
		"flipped.gz": flipped(gz.Bytes()), "flipped.zst": flipped(zst.Bytes()),
	} {
		if _, err := data.ReadText([]string{file(name, content)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v doesn't name the file", name, err)
		}
	}
}

// flipped has a wrong bit in its middle.
func flipped(b []byte) []byte {
	c := bytes.Clone(b)
	c[len(c)/2] ^= 16
	return c
}
