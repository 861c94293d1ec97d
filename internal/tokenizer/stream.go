package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// StreamDecoder decodes ids as they come. It holds back a character of which
// only the first bytes have come, so that what it returns can be printed at
// once; all that it returns, joined, is what Decode, or DecodeText, returns for all ids.
type StreamDecoder struct{ d decoder }

// NewStreamDecoder returns a decoder at the beginning of a text. Special tokens are
// part of it by their names, as Decode has them.
func NewStreamDecoder(tok Tokenizer) *StreamDecoder { return &StreamDecoder{tok.newDecoder(true)} }

// NewTextDecoder is NewStreamDecoder without special tokens, as DecodeText.
func NewTextDecoder(tok Tokenizer) *StreamDecoder { return &StreamDecoder{tok.newDecoder(false)} }

// Decode returns the text that ids complete. Bytes that can't become valid
// UTF-8 any more are not held back.
func (d *StreamDecoder) Decode(ids ...int32) []byte {
	var text []byte
	for _, id := range ids {
		text = d.d.next(text, id)
	}
	return text
}

// Flush returns what is still held back, at the end of a text.
func (d *StreamDecoder) Flush() []byte { return d.d.flush(nil) }

// pieces decodes where the text of ids is that of each, joined.
type pieces struct {
	tok  Tokenizer
	held []byte // the beginning of a character, at most utf8.UTFMax-1 bytes
}

func (p *pieces) next(dst []byte, id int32) []byte {
	text := append(p.held, p.tok.Decode([]int32{id})...)
	cut := len(text) - incomplete(text)
	p.held = slices.Clone(text[cut:])
	return append(dst, text[:cut]...)
}

func (p *pieces) flush(dst []byte) []byte {
	dst = append(dst, p.held...)
	p.held = nil
	return dst
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
