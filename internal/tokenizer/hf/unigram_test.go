package hf

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestLooseFloat: numbers are those of the library's JSON parser, which are not always the nearest ones.
func TestLooseFloat(t *testing.T) {
	for text, want := range map[string]float64{
		"-15.275492379532281": -15.27549237953228, "-9.908701741838819": -9.90870174183882, "-14.429688151665367": -14.429688151665369,
		"-1.5": -1.5, "0": 0, "-3": -3, "1E2": 100, "2.5e-3": 0.0025, "1e-400": 0, "0e999": 0, "0e99999999999": 0, "1e-99999999999": 0,
		"18446744073709551619": 18446744073709551610, "0.10000000000000000000000001": 0.1,
	} {
		if got, ok := looseFloat(text); got != want || !ok {
			t.Errorf("%s: %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"1e309", "-1e309", "1e99999999999", "123e307"} {
		if got, ok := looseFloat(text); ok {
			t.Errorf("%s: %v", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // any number of JSON
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,12})?`).Draw(t, "number")
		if got, ok := looseFloat(text); ok && (math.IsInf(got, 0) || math.IsNaN(got)) {
			t.Fatalf("%s: %v", text, got)
		}
	})
}

// TestTrie: it finds the tokens that a text begins with, and nothing else.
func TestTrie(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := make(map[string]int32)
		for i, name := range rapid.SliceOfDistinct(rapid.StringOfN(rapid.SampledFrom([]rune("abc▁é字\x00")), 0, 5, -1),
			func(s string) string { return s }).Draw(t, "names") {
			ids[name] = int32(i)
		}
		trie := newTrie(ids)
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abc▁é字d\x00")), 0, 8, -1).Draw(t, "text")
		node := int32(trieRoot)
		for i := range len(text) {
			if node >= 0 {
				node = trie.child(node, text[i])
			}
			want, ok := ids[text[:i+1]]
			if !ok {
				want = -1
			}
			got := int32(-1)
			if node >= 0 {
				got = trie.units[node].id
			}
			if got != want {
				t.Fatalf("%q of %v: %d, want %d", text[:i+1], ids, got, want)
			}
		}
	})
}

// TestUnknown: characters that no token stands for.
func TestUnknown(t *testing.T) {
	parse := func(model string) *Tokenizer {
		t.Helper()
		tok, err := Parse([]byte(`{"model":` + model + "}"))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	none := parse(`{"type":"Unigram","vocab":[["a",-1],["xy",-1]]}`)
	for range 2 { // what is cached does not hide an error
		if ids, err := none.AppendEncode(nil, []byte("aba"), Plain); err == nil || !strings.Contains(err.Error(), "no unk_id") {
			t.Errorf("%v, %v", ids, err)
		}
	}
	for _, tt := range []struct {
		model, text string
		want        []int32
	}{
		{`{"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1],["xy",-99]]}`, "axya", []int32{1, 2, 1}}, // two unknown ones are a token
		{`{"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1]]}`, "b?ca", []int32{0, 1}},
		{`{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["?",0],["<0x62>",-1]]}`, "bb", []int32{1, 1}},
		{`{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["?",0],["<0x62>",-1]]}`, "bc", []int32{0}},
		{`{"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1],["a",-2]]}`, "a", []int32{2}},
		{`{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":3,"vocab":{"?":0,"a":1,"##a":2,"##":3}}`,
			"aaa", []int32{1, 2, 2}},
		{`{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":3,"vocab":{"?":0,"a":1,"##a":2}}`,
			"aaaa", []int32{0}},
		{`{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"","max_input_chars_per_word":9,"vocab":{"?":0,"a":1}}`,
			"aab", []int32{0}},
	} {
		tok := parse(tt.model)
		for range 2 {
			if got := encode(t, tok, tt.text, Plain); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q: %v, want %v", tt.model, tt.text, got, tt.want)
			}
		}
		checkSpans(t, &vector{tok: tok}, tt.text, Plain)
	}
	lacks := parse(`{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":3,"vocab":{"a":1}}`)
	_, err := lacks.AppendEncode(nil, []byte("b"), Plain)
	if err == nil || !strings.Contains(err.Error(), "unk_token is not in the vocabulary") {
		t.Error(err)
	}
}

// TestLongUnigram: a word that is encoded in parts has the ids of the whole.
func TestLongUnigram(t *testing.T) {
	for _, v := range allVectors(t) {
		u, ok := v.tok.model.(*unigram)
		if !ok {
			continue
		}
		var text strings.Builder
		for text.Len() < 6*unigramPart {
			for _, r := range v.Rows {
				text.WriteString(r.line)
			}
		}
		word := []byte(text.String())
		w := &work{}
		if got, want := u.best(w, nil, word), wholePath(u, word); !slices.Equal(got, want) {
			t.Errorf("%s: %d ids in parts, %d at once", v.Name, len(got), len(want))
		}
		if len(w.path) > 2*unigramPart {
			t.Errorf("%s: a part of %d bytes", v.Name, len(w.path))
		}
	}
}

// wholePath encodes a word at once, in a simple way.
func wholePath(u *unigram, word []byte) []int32 {
	path := longer(nil, len(word))
	path[0] = pathNode{from: 0}
	for at := range word {
		if path[at].from < 0 {
			continue // inside of a character
		}
		_, size := utf8.DecodeRune(word[at:])
		single := false
		better := func(to int, score float64, id int32) {
			if sum := path[at].score + score; path[to].from < 0 || sum > path[to].score {
				path[to] = pathNode{sum, int32(at), id}
			}
		}
		for to := at + 1; to <= min(len(word), at+40); to++ {
			if id, ok := u.ids[string(word[at:to])]; ok {
				better(to, u.scores[id], id)
				single = single || to == at+size
			}
		}
		if !single {
			better(at+size, u.unkScore, u.unk)
		}
	}
	return u.follow(&work{}, nil, word, 0, path)
}
