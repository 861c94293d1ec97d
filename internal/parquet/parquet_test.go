package parquet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	lib "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/troupe-ml/troupe/internal/parquet"
)

type message struct {
	Role    string  `parquet:"role"`
	Content *string `parquet:"content,optional"`
}

type record struct {
	Text     *string           `parquet:"text,optional"`
	Messages []message         `parquet:"messages,list"`
	Score    float64           `parquet:"score"`
	Tags     []string          `parquet:"tags,list"`
	Count    *int64            `parquet:"count,optional"`
	Good     bool              `parquet:"good"`
	Extra    map[string]string `parquet:"extra"`
}

func ptr[T any](v T) *T { return &v }

func records(n int) []record {
	all := make([]record, n)
	for i := range all {
		all[i] = record{Text: ptr(fmt.Sprintf("text %d \"quoted\"\n\t\x01é", i)), Score: float64(i) / 2, Good: i%2 == 0,
			Messages: []message{{"user", ptr("hi")}, {"assistant", ptr(strings.Repeat("x", i%7))}}}
		switch i % 3 {
		case 0:
			all[i].Text, all[i].Tags = nil, []string{"a", "b"}
		case 1:
			all[i].Messages, all[i].Count = nil, ptr(int64(-i))
		case 2:
			all[i].Messages[1].Content, all[i].Extra = nil, map[string]string{"k": "v"}
		}
	}
	return all
}

func written[T any](tb testing.TB, rows []T, options ...lib.WriterOption) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := lib.NewGenericWriter[T](&b, options...)
	for i := range rows { // row by row, so that groups end where options say
		if _, err := w.Write(rows[i : i+1]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func lines(file []byte, columns ...string) (all []string, err error) {
	r, err := parquet.Open(bytes.NewReader(file), int64(len(file)), columns)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		line, err := r.Next(nil)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, string(line))
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	const n = 1000
	for name, codec := range map[string]compress.Codec{"none": &lib.Uncompressed, "snappy": &lib.Snappy, "zstd": &lib.Zstd,
		"gzip": &lib.Gzip} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				t.Parallel()
				file := written(t, records(n), lib.Compression(codec), lib.DataPageVersion(version), lib.PageBufferSize(512),
					lib.MaxRowsPerRowGroup(300))
				all, err := lines(file)
				if err != nil || len(all) != n {
					t.Fatalf("%d rows, %v", len(all), err)
				}
				for i, want := range map[int]string{
					0: `{"text":null,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":""}],"score":0,` +
						`"tags":["a","b"],"count":null,"good":true,"extra":[]}`,
					1: `{"text":"text 1 \"quoted\"\n\t\u0001é","messages":[],"score":0.5,"tags":[],"count":-1,"good":false,"extra":[]}`,
					998: `{"text":"text 998 \"quoted\"\n\t\u0001é","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null}],` +
						`"score":499,"tags":[],"count":null,"good":true,"extra":[{"key":"k","value":"v"}]}`,
				} {
					if all[i] != want {
						t.Errorf("row %d\n%s, want\n%s", i, all[i], want)
					}
				}
				if some, err := lines(file, "good", "missing"); err != nil || some[1] != `{"good":false}` {
					t.Errorf("%v, %v", some[1], err)
				}
				r, err := parquet.Open(bytes.NewReader(file), int64(len(file)), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Skip(700); err != nil {
					t.Fatal(err)
				}
				if line, err := r.Next(nil); err != nil || string(line) != all[700] || r.Row() != 701 || r.Rows() != n {
					t.Errorf("%s, %v", line, err)
				}
			})
		}
	}
}

type image struct {
	Bytes []byte `parquet:"bytes"`
	Path  string `parquet:"path"`
}

func TestRefused(t *testing.T) {
	t.Parallel()
	whole := written(t, records(500), lib.Compression(&lib.Snappy), lib.PageBufferSize(512))
	huge := bytes.Clone(whole)
	copy(huge[len(huge)-8:], "\xff\xff\xff\xff")
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":         {nil, "damaged"},
		"cut":           {whole[:len(whole)/2], "footer is missing"},
		"cut by a byte": {whole[:len(whole)-1], "footer is missing"},
		"footer":        {huge, "4294967295 bytes"},
		"image": {written(t, []struct {
			Text  string `parquet:"text"`
			Image image  `parquet:"image"`
		}{{"a", image{[]byte{1}, "p"}}}), `column "image"`},
		"images": {written(t, []struct {
			Text   string  `parquet:"text"`
			Images []image `parquet:"images,list"`
		}{{"a", []image{{[]byte{1}, "p"}}}}), `column "images"`},
		"bytes": {written(t, []struct {
			Text []byte `parquet:"text"`
		}{{[]byte("a")}}), `column "text": it holds bytes`},
		"not UTF-8": {written(t, []struct {
			Text string `parquet:"text"`
		}{{"\xff"}}), `column "text": the text is not UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := lines(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want …%s…", err, c.want)
			}
		})
	}
}

// TestDamaged flips every byte of a file: each gives rows or an error, never a panic.
func TestDamaged(t *testing.T) {
	t.Parallel()
	whole := written(t, records(20), lib.Compression(&lib.Zstd), lib.PageBufferSize(256))
	for i := range whole {
		for _, with := range []byte{0, 0x7f, 0xff} {
			file := bytes.Clone(whole)
			file[i] = with
			_, _ = lines(file)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(written(f, records(20), lib.Compression(&lib.Snappy), lib.PageBufferSize(256)))
	f.Add(written(f, records(20), lib.Compression(&lib.Zstd), lib.DataPageVersion(2), lib.MaxRowsPerRowGroup(7)))
	f.Add(written(f, records(3), lib.Compression(&lib.Gzip)))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := parquet.Open(bytes.NewReader(file), int64(len(file)), nil)
		if err != nil {
			return
		}
		defer r.Close()
		for range 100 { // a few bytes may state millions of nulls
			line, err := r.Next(nil)
			if err != nil {
				return
			}
			if !json.Valid(line) {
				t.Fatalf("not JSON: %s", line)
			}
		}
	})
}
