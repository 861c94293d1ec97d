package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// StreamDecoder decodes ids as they come. It holds back a character of which
// only the first bytes have come, so that what it returns can be printed at
// once; all that it returns, joined, is what Decode returns for all ids.
type StreamDecoder struct {
	tok  Tokenizer
	held []byte // the beginning of a character, at most utf8.UTFMax-1 bytes
}

// NewStreamDecoder returns a decoder at the beginning of a text.
func NewStreamDecoder(tok Tokenizer) *StreamDecoder { return &StreamDecoder{tok: tok} }

// Decode returns the text that ids complete. Bytes that can't become valid
// UTF-8 any more are not held back.
func (d *StreamDecoder) Decode(ids ...int32) []byte {
	text := append(d.held, d.tok.Decode(ids)...)
	cut := len(text) - incomplete(text)
	d.held = slices.Clone(text[cut:])
	return text[:cut]
}

// Flush returns what is still held back, at the end of a text.
func (d *StreamDecoder) Flush() []byte {
	held := d.held
	d.held = nil
	return held
}

// incomplete returns how many bytes at the end of a text begin a character
// without ending it.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		tail := text[len(text)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
