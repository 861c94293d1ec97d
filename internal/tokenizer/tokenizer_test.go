package tokenizer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		ids, err := Bytes{}.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if id != int32(text[i]) {
				t.Fatalf("byte %d is %d, its id %d", i, text[i], id)
			}
		}
		if got := (Bytes{}).Decode(ids); !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestCharsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.StringN(1, -1, -1).Draw(t, "text"))
		c, err := BuildChars(text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(c.runes) || len(slices.Compact(slices.Clone(c.runes))) != c.Vocab() {
			t.Fatalf("the vocabulary %q is not a sorted set", c.runes)
		}
		ids, err := c.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != utf8.RuneCount(text) {
			t.Fatalf("%d ids for %d characters", len(ids), utf8.RuneCount(text))
		}
		if got := c.Decode(ids); !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestCharsIDs(t *testing.T) {
	c, err := BuildChars([]byte("hello,\n wörld €🙂\uFFFD"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n ,dehlorwö€\uFFFD🙂"; string(c.runes) != want {
		t.Errorf("the vocabulary is %q, want %q", string(c.runes), want)
	}
	ids, err := c.AppendEncode([]int32{7}, []byte("öd\n"))
	if want := []int32{7, 10, 3, 0}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("AppendEncode = %v, %v, want %v", ids, err, want)
	}
}

func TestDecodeOutsideTheVocabulary(t *testing.T) {
	c, err := BuildChars([]byte("ab"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Decode([]int32{-1, 0, 1, 2, 1 << 30})); got != "\uFFFDab\uFFFD\uFFFD" {
		t.Errorf("chars: %q", got)
	}
	if got := string(Bytes{}.Decode([]int32{-1, 'a', 256})); got != "\uFFFDa\uFFFD" {
		t.Errorf("bytes: %q", got)
	}
}

func TestTextErrors(t *testing.T) {
	c, err := BuildChars([]byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	encode := func(text string) error {
		ids, err := c.AppendEncode([]int32{1}, []byte(text))
		if !slices.Equal(ids, []int32{1}) {
			t.Errorf("%q: after the error dst is %v", text, ids)
		}
		return err
	}
	build := func(text string) error {
		_, err := BuildChars([]byte(text))
		return err
	}
	var many strings.Builder
	for r := rune(0x10000); r <= 0x10000+MaxChars; r++ {
		many.WriteRune(r)
	}
	for _, tc := range []struct {
		name   string
		err    error
		offset int
		says   []string
	}{
		{"unknown letter", encode("abéc"), 2, []string{"byte 2: ", "'é'", "U+00E9", "3 characters of the vocabulary", `"bytes"`}},
		{"unknown control", encode("\x07"), 0, []string{`'\a'`, "U+0007"}},
		{"encode invalid", encode("abc\xff"), 3, []string{"0xff", "UTF-8"}},
		{"build invalid", build("aé\xc3"), 3, []string{"0xc3", "UTF-8", `"bytes"`}},
		{"build surrogate", build("\xed\xa0\x80"), 0, []string{"0xed"}},
		{"too many", build(many.String()), 4 * MaxChars, []string{"65536", `"bytes"`}},
	} {
		var at *TextError
		if !errors.As(tc.err, &at) {
			t.Errorf("%s: error %v is no TextError", tc.name, tc.err)
			continue
		}
		if at.ByteOffset() != tc.offset {
			t.Errorf("%s: offset %d, want %d", tc.name, at.ByteOffset(), tc.offset)
		}
		for _, s := range tc.says {
			if !strings.Contains(tc.err.Error(), s) {
				t.Errorf("%s: %q does not say %q", tc.name, tc.err, s)
			}
		}
	}
	if err := build(""); err == nil {
		t.Error("an empty text made a vocabulary")
	}
}

func TestStreamDecoderHoldsBack(t *testing.T) {
	d := NewStreamDecoder(Bytes{})
	for _, step := range []struct {
		in   string
		want string
	}{
		{"a", "a"},
		{"\xf0", ""}, {"\x9f", ""}, {"\x99", ""}, {"\x82", "🙂"},
		{"b\xc3", "b"}, {"x", "\xc3x"}, // never completed: let go
		{"\x80\x80", "\x80\x80"},
		{"\xe2\x82", ""},
	} {
		ids, err := Bytes{}.Encode([]byte(step.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(d.Decode(ids...)); got != step.want {
			t.Errorf("after %q: %q, want %q", step.in, got, step.want)
		}
	}
	if got := string(d.Flush()); got != "\xe2\x82" {
		t.Errorf("Flush = %q", got)
	}
	if got := d.Flush(); len(got) != 0 {
		t.Errorf("a second Flush = %q", got)
	}
}

func TestStreamDecoderEqualsDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		).Draw(t, "text")
		ids, err := Bytes{}.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		d := NewStreamDecoder(Bytes{})
		var got []byte
		for rest := ids; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			part := d.Decode(rest[:n]...)
			if utf8.Valid(text) && !utf8.Valid(part) {
				t.Fatalf("%q cuts a character of %q", part, text)
			}
			got, rest = append(got, part...), rest[n:]
		}
		got = append(got, d.Flush()...)
		if want := (Bytes{}).Decode(ids); !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// A tokenizer's name is the one that a configuration calls it by, and its ids are those
// below its vocabulary.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		tok   Tokenizer
		name  string
		vocab int
	}{
		{Bytes{}, "bytes", 256},
		{chars(t, "aaß日a"), "chars", 3},
	} {
		if c.tok.Name() != c.name || c.tok.Vocab() != c.vocab {
			t.Errorf("%s with %d ids, want %s with %d", c.tok.Name(), c.tok.Vocab(), c.name, c.vocab)
		}
		again, err := Unmarshal(marshal(t, c.tok))
		if err != nil || again.Name() != c.name || again.Vocab() != c.vocab {
			t.Errorf("read again it is %v, %v, want %s", again, err, c.name)
		}
	}
}

// Whoever knows the file takes the place and the cause of a text's error apart.
func TestTextErrorComesApart(t *testing.T) {
	_, err := chars(t, "abc").Encode([]byte("cabd"))
	var of *TextError
	if !errors.As(err, &of) {
		t.Fatalf("error %v, want a TextError", err)
	}
	if of.Offset != 3 || of.ByteOffset() != 3 || !errors.Is(errors.Unwrap(err), of.Err) || err.Error() != "byte 3: "+of.Err.Error() {
		t.Errorf("byte %d, %d, cause %v, error %v", of.Offset, of.ByteOffset(), errors.Unwrap(err), err)
	}
}
