package hf

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestSpans: ids are those of AppendEncode, and the spans of a text's tokens follow one another, are in
// the text, and leave out nothing that the tokenizer keeps.
func TestSpans(t *testing.T) {
	for _, v := range allVectors(t) {
		for _, r := range v.Rows {
			for _, mode := range []Mode{Plain, Special} {
				checkSpans(t, v, r.line, mode)
			}
		}
	}
}

func checkSpans(t failer, v *vector, text string, mode Mode) []Span {
	t.Helper()
	ids, spans, err := v.tok.EncodeSpans([]byte(text), mode)
	if err != nil {
		t.Fatal(err)
	}
	if want := encode(t, v.tok, text, mode); !slices.Equal(ids, want) {
		t.Fatal(v.Name, mode, text, ids, "want", want)
	}
	if len(spans) != len(ids) {
		t.Fatal(v.Name, mode, text, len(spans), "spans of", len(ids), "ids")
	}
	for i, s := range spans {
		if s.From < 0 || s.To < s.From || int(s.To) > len(text) {
			t.Fatal(v.Name, mode, text, "span", i, s)
		}
	}
	return spans
}

// TestEdits: what normalizers say that they change is what they change.
func TestEdits(t *testing.T) {
	alphabet := []rune("ab AB \t\n▁'’éÉ\u0301\u0323\u0308ﬁＡ가각\u1100\u1161\u11a8Å\u212b²½ｶﾞ\u0f71\u0f72\u0f74\u0344\ufdfa\u200b\ufeff😀")
	for _, v := range allVectors(t) {
		rapid.Check(t, func(rt *rapid.T) {
			text := []byte(string(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 24).Draw(rt, "text")))
			w := v.tok.work()
			for i, n := range v.tok.normalizers {
				var made []byte
				at := 0
				n.edits(w, text, func(from, to int, with []byte) {
					if from < at || to < from || to > len(text) {
						rt.Fatal(v.Name, i, "edit", from, to, "after", at)
					}
					made = append(append(made, text[at:from]...), with...)
					at = to
				})
				made = append(made, text[at:]...)
				want := n.apply(w, nil, text)
				if !bytes.Equal(made, want) {
					rt.Fatal(v.Name, i, string(text), string(made), "want", string(want))
				}
				text = want
			}
			checkSpans(rt, v, string(text), Special)
		})
	}
}

// TestSpansOfBytes: a byte-level tokenizer that changes nothing has spans that are the text, whole and in
// order.
func TestSpansOfBytes(t *testing.T) {
	n := 0
	for _, v := range allVectors(t) {
		if len(v.tok.normalizers) > 0 || len(v.tok.steps) != 1 || v.tok.bpe == nil || !v.tok.bpe.bytes {
			continue
		}
		n++
		for _, r := range v.Rows {
			at := int32(0)
			for _, s := range checkSpans(t, v, r.line, Special) {
				if s.From != at {
					t.Fatalf("%s: %q: a span from %d, after %d", v.Name, r.line, s.From, at)
				}
				at = s.To
			}
			if int(at) != len(r.line) && utf8.ValidString(r.line) {
				t.Fatalf("%s: %q: spans end at %d", v.Name, r.line, at)
			}
		}
	}
	if n == 0 {
		t.Error("no such tokenizer among the vectors")
	}
}

// TestAround: what a post-processor adds, in front and after.
func TestAround(t *testing.T) {
	for _, v := range allVectors(t) {
		before, after := v.tok.Around()
		for _, r := range v.Rows {
			if want := slices.Concat(before, r.special, after); !slices.Equal(r.whole, want) &&
				strings.Count(string(v.Tokenizer), `"Sequence":{"id":"A"`) < 2 {
				t.Errorf("%s: %q: %v, want %v", v.Name, r.line, want, r.whole)
			}
		}
	}
}

// TestSpansAsTheLibrary: the spans are the offsets of the tokenizers library, up to whole characters. Where a
// normal form, a charsmap or a Replace joins characters or parts one, the library has a token stand for some of
// them, chosen by their number; here it stands for all.
func TestSpansAsTheLibrary(t *testing.T) {
	var all []struct {
		Name string
		Rows [][]int
	}
	if err := readPacked("spans.json.gz", &all); err != nil {
		t.Fatal(err)
	}
	for i, v := range allVectors(t) {
		if v.Name != all[i].Name {
			t.Fatalf("spans of %s, a tokenizer %s", all[i].Name, v.Name)
		}
		for k, flat := range all[i].Rows {
			if flat == nil || v.tok.bpe != nil && drops(v.tok.bpe, v.Rows[k].line) {
				continue // the library's offsets leave out characters that the vocabulary lacks, and no longer fit
			}
			if slices.ContainsFunc(v.tok.normalizers, func(n normalizer) bool { return removesFirst(n, v.Rows[k].line) }) {
				continue // the library's offsets leave out what a charsmap removes at the start
			}
			line := v.Rows[k].line
			chars := make([]int, 0, len(line)+1) // where each begins, and where the last one ends
			for at := range line {
				chars = append(chars, at)
			}
			chars = append(chars, len(line))
			spans := checkSpans(t, v, line, Special)
			if len(spans) != len(flat)/2 {
				t.Errorf("%s: %q: %d spans, want %d", v.Name, line, len(spans), len(flat)/2)
				continue
			}
			at, forms := 0, slices.ContainsFunc(v.tok.normalizers, joins)
			for j, s := range spans {
				at += flat[2*j]
				from, to := chars[at], chars[at+flat[2*j+1]]
				at += flat[2*j+1]
				got, want := whole(line, s), Span{int32(from), int32(to)}
				if more := forms && got.From <= want.From && got.To >= want.To; got != want && !more {
					t.Errorf("%s: %q: token %d stands for %v %q, want %q", v.Name, line, j, s, line[got.From:got.To], line[from:to])
				}
			}
		}
	}
}

// joins reports whether a normalizer may make one character of several, or several of one.
func joins(n normalizer) bool {
	switch n.(type) {
	case *form, *charsmap, replacePattern:
		return true
	}
	return false
}

func removesFirst(n normalizer, line string) bool {
	c, ok := n.(*charsmap)
	if !ok || line == "" {
		return false
	}
	with, found := c.find([]byte(line[:c.graphemes.first([]byte(line))]))
	return found && len(with) == 0
}

// whole widens a span to whole characters.
func whole(text string, s Span) Span {
	for s.From > 0 && int(s.From) < len(text) && !utf8.RuneStart(text[s.From]) {
		s.From--
	}
	for int(s.To) < len(text) && !utf8.RuneStart(text[s.To]) {
		s.To++
	}
	return s
}

func drops(m *bpe, line string) bool {
	if m.hasUnk || m.byteFallback || m.bytes {
		return false
	}
	for _, r := range line {
		if _, ok := m.ids[string(r)]; !ok {
			return true
		}
	}
	return false
}
