package tokenizer

import (
	"bytes"
	"slices"
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
