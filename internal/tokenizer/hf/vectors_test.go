package hf

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// vector is a tokenizer, and what the tokenizers library makes of lines.
type vector struct {
	Name      string
	Tokenizer json.RawMessage
	Rows      []row
	tok       *Tokenizer
}

type row struct {
	line                  string
	plain, special, whole []int32
	text, without         string // of whole, with special tokens and without
}

func (r *row) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.line, &r.plain, &r.special, &r.whole, &r.text, &r.without})
}

var vectors = sync.OnceValues(func() ([]*vector, error) {
	var all []*vector
	err := readPacked("vectors.json.gz", &all)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.tok, err = Parse(v.Tokenizer); err != nil {
			return nil, err
		}
	}
	return all, nil
})

func readPacked(name string, v any) error {
	packed, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		return err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return json.NewDecoder(r).Decode(v)
}

func allVectors(t testing.TB) []*vector {
	t.Helper()
	all, err := vectors()
	if err != nil || len(all) < 10 {
		t.Fatalf("%d vectors: %v", len(all), err)
	}
	return all
}

// failer is a testing.TB or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func encode(t failer, tok *Tokenizer, text string, mode Mode) []int32 {
	t.Helper()
	ids, err := tok.AppendEncode([]int32{}, []byte(text), mode)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestVectors: ids and texts are those of the tokenizers library.
func TestVectors(t *testing.T) {
	for _, v := range allVectors(t) {
		for _, r := range v.Rows {
			for mode, want := range map[Mode][]int32{Plain: r.plain, Special: r.special, Whole: r.whole} {
				if got := encode(t, v.tok, r.line, mode); !slices.Equal(got, want) {
					t.Errorf("%s: %q in mode %d: %v, want %v", v.Name, r.line, mode, got, want)
				}
			}
			if got := string(v.tok.AppendDecode(nil, r.whole, true)); got != r.text {
				t.Errorf("%s: %v is %q, want %q", v.Name, r.whole, got, r.text)
			}
			if got := string(v.tok.AppendDecode(nil, r.whole, false)); got != r.without {
				t.Errorf("%s: %v without special tokens is %q, want %q", v.Name, r.whole, got, r.without)
			}
		}
	}
}

// TestDecoder: what comes id by id is the same text, and never ends inside a character.
func TestDecoder(t *testing.T) {
	for _, v := range allVectors(t) {
		for _, r := range v.Rows {
			for _, special := range []bool{false, true} {
				d := v.tok.NewDecoder(special)
				var text []byte
				for _, id := range r.whole {
					before := len(text)
					if text = d.Next(text, id); !validEnd(text[before:]) {
						t.Fatalf("%s: %q cuts a character of %q", v.Name, text[before:], r.text)
					}
				}
				want := r.without
				if special {
					want = r.text
				}
				if text = d.Flush(text); string(text) != want {
					t.Errorf("%s: id by id it is %q, want %q", v.Name, text, want)
				}
			}
		}
	}
}

func validEnd(text []byte) bool { return unfinished(text) == 0 }

// TestConcurrentUse: one tokenizer serves many goroutines.
func TestConcurrentUse(t *testing.T) {
	for _, v := range allVectors(t)[:3] {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, r := range v.Rows {
					got, err := v.tok.AppendEncode(nil, []byte(r.line), Plain)
					if err != nil || !slices.Equal(got, r.plain) {
						t.Errorf("%s: %q: %v, %v", v.Name, r.line, got, err)
					}
				}
			})
		}
		wg.Wait()
	}
}
