package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// MaxChars limits the vocabulary of a Chars tokenizer: every script in common use fits, and a file
// that isn't text is detected.
const MaxChars = 1 << 16

// Chars is the tokenizer whose ids are the characters (Unicode code points) of a training text.
type Chars struct {
	runes []rune // by id
	ascii [utf8.RuneSelf]int32
	ids   map[rune]int32 // ids of the other characters
}

// BuildChars makes the tokenizer of a text: its characters, sorted by code point, get the ids 0, 1,
// 2 …
func BuildChars(text []byte) (*Chars, error) {
	var runes []rune
	seen := make([]bool, utf8.MaxRune+1)
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if invalid(r, size) {
			return nil, invalidUTF8(text, at)
		}
		if !seen[r] {
			seen[r] = true
			runes = append(runes, r)
			if len(runes) > MaxChars {
				return nil,
					&TextError{at,
						fmt.Errorf("the text has more than %d different characters, the limit of tokenizer = \"chars\": use tokenizer = \"bytes\"",
							MaxChars)}
			}
		}
		at += size
	}
	if len(runes) == 0 {
		return nil, errors.New("the text is empty, so there are no characters for a vocabulary")
	}
	slices.Sort(runes)
	return newChars(runes), nil
}

// newChars makes a tokenizer from at most MaxChars different characters, in the order of their ids.
func newChars(runes []rune) *Chars {
	c := &Chars{runes: runes, ids: make(map[rune]int32)}
	for i := range c.ascii {
		c.ascii[i] = -1
	}
	for id, r := range runes {
		if r < utf8.RuneSelf {
			c.ascii[r] = int32(id)
		} else {
			c.ids[r] = int32(id)
		}
	}
	return c
}

// Name returns "chars".
func (*Chars) Name() string { return "chars" }

// Vocab returns the number of characters.
func (c *Chars) Vocab() int { return len(c.runes) }

// Encode returns one id for each character. A character outside the vocabulary and invalid UTF-8
// are errors.
func (c *Chars) Encode(text []byte) ([]int32, error) { return c.AppendEncode(nil, text) }

// AppendEncode appends one id for each character.
func (c *Chars) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	ids := slices.Grow(dst, utf8.RuneCount(text))
	for at := 0; at < len(text); {
		if b := text[at]; b < utf8.RuneSelf && c.ascii[b] >= 0 {
			ids = append(ids, c.ascii[b])
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if invalid(r, size) {
			return dst, invalidUTF8(text, at)
		}
		id, ok := c.ids[r]
		if !ok {
			return dst,
				&TextError{at,
					fmt.Errorf("the character %q (%U) is not among the %d characters of the vocabulary, which comes from the training text: add it to that text and train from scratch, remove it here, or use tokenizer = \"bytes\"", r, r, len(c.runes))}
		}
		ids = append(ids, id)
		at += size
	}
	return ids, nil
}

// EncodeSpecial is Encode: there are no special tokens.
func (c *Chars) EncodeSpecial(text []byte, _ bool) ([]int32, error) { return c.Encode(text) }

// EncodeSpans is Encode with the bytes of each character.
func (c *Chars) EncodeSpans(text []byte, _ bool) ([]int32, []Span, error) {
	ids, err := c.Encode(text)
	if err != nil {
		return nil, nil, err
	}
	spans := make([]Span, 0, len(ids))
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRune(text[at:])
		spans = append(spans, Span{From: int32(at), To: int32(at + size)})
		at += size
	}
	return ids, spans, nil
}

// Around returns nothing: a text is its characters.
func (*Chars) Around() (before, after []int32) { return nil, nil }

// SpecialNames returns 0: there are no special tokens.
func (*Chars) SpecialNames([]byte) int { return 0 }

// Cut returns most, or less if that is inside a character. Invalid UTF-8 may be cut anywhere, since
// it can't be encoded.
func (*Chars) Cut(text []byte, most int) int {
	for at := most; at > 0 && at > most-utf8.UTFMax; at-- {
		if utf8.RuneStart(text[at]) {
			return at
		}
	}
	return most
}

// DecodeText is Decode.
func (c *Chars) DecodeText(ids []int32) []byte { return c.Decode(ids) }

// Token returns the character.
func (c *Chars) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(c.runes) {
		return "", false
	}
	return string(c.runes[id]), true
}

// TokenID returns the id of a character.
func (c *Chars) TokenID(name string) (int32, bool) {
	ids, err := c.Encode([]byte(name))
	if err != nil || len(ids) != 1 {
		return 0, false
	}
	return ids[0], true
}

// IsSpecial returns false.
func (*Chars) IsSpecial(int32) bool { return false }

func (c *Chars) newDecoder(bool) decoder { return &pieces{tok: c} }

// Decode returns the characters as UTF-8.
func (c *Chars) Decode(ids []int32) []byte {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		if id < 0 || int(id) >= len(c.runes) {
			text = append(text, replacement...)
			continue
		}
		text = utf8.AppendRune(text, c.runes[id])
	}
	return text
}

// invalid distinguishes the error value of utf8.DecodeRune from a U+FFFD in the text.
func invalid(r rune, size int) bool { return r == utf8.RuneError && size <= 1 }

func invalidUTF8(text []byte, at int) error {
	return &TextError{at, fmt.Errorf("invalid UTF-8 (0x%02x): convert the text to UTF-8, or use tokenizer = \"bytes\"", text[at])}
}
