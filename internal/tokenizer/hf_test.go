package tokenizer

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// words trains a small tokenizer.
func words(t testing.TB) (*HF, []byte) {
	t.Helper()
	trainer := NewTrainer()
	trainer.Add([]byte("The dancer sings; the singer dances. 12 dancers, 34 singers.\n"))
	file, _, err := trainer.Train(300, []string{"<|end|>", "<|start|>"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Unmarshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok.(*HF), file
}

func TestHF(t *testing.T) {
	tok, file := words(t)
	if got := marshal(t, tok); !bytes.Equal(got, file) {
		t.Error("Marshal gives another file than was read")
	}
	if tok.Name() != HFName || tok.Vocab() < 258 {
		t.Errorf("%s with %d ids", tok.Name(), tok.Vocab())
	}
	const text = "<|start|>the dancers é<|end|>"
	plain, err := tok.Encode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	special, err := tok.EncodeSpecial([]byte(text), false)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(plain, 0) || special[0] != 1 || special[len(special)-1] != 0 || len(special) >= len(plain) {
		t.Errorf("plain %v, with special tokens %v", plain, special)
	}
	for _, c := range []struct {
		ids         []int32
		text, plain string
	}{{plain, text, text}, {special, text, "the dancers é"}, {append([]int32{9999, -1}, special...), text, "the dancers é"}} {
		if got := string(tok.Decode(c.ids)); got != c.text {
			t.Errorf("%v is %q, want %q", c.ids, got, c.text)
		}
		if got := string(tok.DecodeText(c.ids)); got != c.plain {
			t.Errorf("%v without special tokens is %q, want %q", c.ids, got, c.plain)
		}
	}
	if id, ok := tok.TokenID("<|end|>"); id != 0 || !ok || !tok.IsSpecial(0) || tok.IsSpecial(5) {
		t.Errorf("<|end|> is %d, %v", id, ok)
	}
	if name, ok := tok.Token(1); name != "<|start|>" || !ok {
		t.Errorf("the token 1 is %q, %v", name, ok)
	}
}

// A text that comes id by id is the text, whole characters at a time.
func TestHFStream(t *testing.T) {
	tok, _ := words(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		ids, err := tok.Encode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d := NewTextDecoder(tok)
		var got []byte
		for _, id := range ids {
			part := d.Decode(id)
			if n := incomplete(part); n > 0 {
				t.Fatalf("%q cuts a character of %q", part, text)
			}
			got = append(got, part...)
		}
		if got = append(got, d.Flush()...); string(got) != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestWithNames: names of special tokens are the tokens, and count as names.
func TestWithNames(t *testing.T) {
	file, err := Marshal(Bytes{})
	if err != nil {
		t.Fatal(err)
	}
	const end = `{"id": 256, "content": "<end>", "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}`
	tok, err := Unmarshal([]byte(strings.Replace(string(file), `"added_tokens": []`, `"added_tokens": [`+end+`]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	const text = "a<end>b<end>"
	named, err := WithNames(tok).AppendEncode([]int32{7}, []byte(text))
	if want := []int32{7, 'a', 256, 'b', 256}; err != nil || !slices.Equal(named, want) {
		t.Errorf("%v, want %v, %v", named, want, err)
	}
	plain, err := tok.Encode([]byte(text))
	if err != nil || len(plain) != len(text) || tok.SpecialNames([]byte(text)) != 2 {
		t.Errorf("%v, %d names, %v", plain, tok.SpecialNames([]byte(text)), err)
	}
	ids, spans, err := tok.EncodeSpans([]byte(text), false)
	if err != nil || !slices.Equal(ids, named[1:]) || spans[1] != (Span{From: 1, To: 6}) {
		t.Errorf("%v, %v, %v", ids, spans, err)
	}
	for _, own := range []Tokenizer{Bytes{}, WithNames(Bytes{})} {
		if ids, err := own.Encode([]byte("é")); err != nil || !slices.Equal(ids, []int32{0xC3, 0xA9}) || own.SpecialNames([]byte(text)) != 0 {
			t.Errorf("%s: %v, %v", own.Name(), ids, err)
		}
	}
}
