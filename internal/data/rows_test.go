package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	lib "github.com/parquet-go/parquet-go"
)

type textRow struct {
	Text  *string `parquet:"text,optional"`
	Other int     `parquet:"other"`
}

// parquetOf returns a Parquet file with the rows "a0", "a1", …
func parquetOf(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lib.NewGenericWriter[textRow](&b, lib.MaxRowsPerRowGroup(3), lib.Compression(&lib.Zstd))
	for i := range n {
		text := fmt.Sprint("a", i)
		if _, err := w.Write([]textRow{{&text, i}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func allRows(r *Rows) (all []string, err error) {
	defer r.Close()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprintf("%d:%d %s", row.File, row.Row, row.Line))
	}
}

func TestRows(t *testing.T) {
	t.Chdir(t.TempDir())
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("one\r\n\ntwo"))
	_ = z.Close()
	write(t, "a.jsonl.gz", packed.Bytes())
	write(t, "b.parquet", parquetOf(t, 5))
	write(t, "c.jsonl", []byte("\ufeffx\n"+strings.Repeat("y", 1<<19)+"\n"))
	write(t, "d.jsonl", nil)
	files := []string{"a.jsonl.gz", "b.parquet", "c.jsonl", "d.jsonl"}
	want := []string{"0:1 one", "0:3 two"}
	for i := range 5 {
		want = append(want, fmt.Sprintf(`1:%d {"text":"a%d"}`, i+1, i))
	}
	want = append(want, "2:1 x", "2:2 "+strings.Repeat("y", 1<<19))
	for i := range len(want) + 1 {
		file, row := 0, 0
		if i > 0 {
			if _, err := fmt.Sscanf(want[i-1], "%d:%d", &file, &row); err != nil {
				t.Fatal(err)
			}
		}
		r, err := OpenRows(files, []string{"text"}, file, row)
		if err != nil {
			t.Fatal(err)
		}
		got, err := allRows(r)
		if err != nil || strings.Join(got, "\n") != strings.Join(want[i:], "\n") {
			t.Errorf("after row %d: %.200q, %v", i, got, err)
		}
	}
}

func TestBadRows(t *testing.T) {
	t.Chdir(t.TempDir())
	whole := parquetOf(t, 9)
	write(t, "cut.parquet", whole[:len(whole)-9])
	write(t, "lfs.parquet", []byte("version https://git-lfs.github.com/spec/v1\n"))
	write(t, "text.parquet", []byte("text"))
	write(t, "utf8.jsonl", []byte("a\nb\xff\n"))
	write(t, "arrow.jsonl", []byte("ARROW1\x00\x00"))
	for name, want := range map[string]string{
		"cut.parquet": "cut.parquet: the Parquet file is damaged or truncated", "lfs.parquet": "git lfs pull",
		"text.parquet": "does not start like one",
		"utf8.jsonl":   "utf8.jsonl, row 2, byte 1", "arrow.jsonl": "to_parquet", "missing.jsonl": "no such file",
	} {
		r, err := OpenRows([]string{name}, nil, 0, 0)
		if err == nil {
			_, err = allRows(r)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if name == "missing.jsonl" {
			continue
		}
		if _, err := ReadRows([]string{name}, nil); err == nil {
			t.Errorf("%s is read whole", name)
		}
	}
	write(t, "a.parquet", whole)
	if _, err := ReadText([]string{"a.parquet"}); err == nil || !strings.Contains(err.Error(), `data.format = "documents"`) {
		t.Errorf("a table as text: %v", err)
	}
	write(t, "c.jsonl", []byte("1\n"))
	r, err := OpenRows([]string{"a.parquet", "c.jsonl"}, nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "c.jsonl", []byte("1\n2\n"))
	if _, err := allRows(r); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed file: %v", err)
	}
}
