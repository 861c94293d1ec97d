package corpus

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// TestKeptRows: the ids of large files of rows are kept with any tokenizer, and read again; those of small ones are not.
func TestKeptRows(t *testing.T) {
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	writeLines(t, rows, 2*blockLines+7, func(i int) string { return fmt.Sprintf(`{"prompt": "%d and", "completion": " then %d"}`, i, i+1) })
	text := fmt.Appendf(nil, "[data]\ntrain = [%q]\nformat = \"documents\"\n[model]\ncontext = 32\n", rows)
	cfg, err := config.Parse("test.toml", text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for _, c := range []struct {
		name           string
		rowBytes       int64
		made, readable int // files to write, and files that were read
	}{
		{"small", 1 << 40, 0, 0},
		{"large", 1, 1, 0},
		{"again", 1, 0, 1},
	} {
		fsys, err := checkpoint.OpenFS(filepath.Dir(rows))
		if err != nil {
			t.Fatal(err)
		}
		s := NewTokenStore(fsys)
		s.rowBytes = c.rowBytes
		d, err := Load(cfg, nil, rundir.Talk{Ends: []int32{0}, After: []int32{0}}, nil, s)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(s.made) != c.made || len(s.used) != c.made+c.readable || len(s.Warnings) > 0 {
			t.Errorf("%s: %d files to write and %d in use, want %d and %d; warnings %q", c.name, len(s.made), len(s.used), c.made,
				c.made+c.readable, s.Warnings)
		}
		var got []string
		for i := range d.TrainRecords.Len() {
			n := d.TrainRecords.Positions(i)
			tokens, targets := make([]int32, n), make([]int32, n)
			if err := d.TrainRecords.Fill(i, tokens, targets); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(tokens, targets))
		}
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Errorf("%s: %d sequences, which differ from the first %d", c.name, len(got), len(first))
		}
		if warnings := s.Write(); len(warnings) > 0 {
			t.Error(warnings)
		}
		if err := errors.Join(d.Close(), fsys.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestBadRow: a fault is reported once, with its own row, in whatever block of lines it is.
func TestBadRow(t *testing.T) {
	for _, row := range []int{17, blockLines + 3} {
		rows := filepath.Join(t.TempDir(), "rows.jsonl")
		writeLines(t, rows, 2*blockLines, func(i int) string {
			if i+1 == row {
				return `{"prompt": 3}`
			}
			return `{"text": "a"}`
		})
		text, err := data.ReadText([]string{rows})
		if err != nil {
			t.Fatal(err)
		}
		r, err := newDocumentReader(tokenizer.Bytes{}, rundir.Talk{}, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = readDocuments(text, r)
		if want := fmt.Sprintf("rows.jsonl, row %d: ", row); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Count(err.Error(), ", row ") != 1 {
			t.Errorf("row %d: %v, want it once, with %q", row, err, want)
		}
	}
}
