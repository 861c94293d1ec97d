package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// StreamDecoder decodes ids as they arrive. It holds back an incomplete character, so that its
// results can be printed at once. All results together are the result of Decode, or DecodeText, for
// all ids.
type StreamDecoder struct{ d decoder }

// NewStreamDecoder returns a decoder at the start of a text. The names of special tokens are part
// of the text, as in Decode.
func NewStreamDecoder(tok Tokenizer) *StreamDecoder { return &StreamDecoder{tok.newDecoder(true)} }

// NewTextDecoder is NewStreamDecoder without special tokens, like DecodeText.
func NewTextDecoder(tok Tokenizer) *StreamDecoder { return &StreamDecoder{tok.newDecoder(false)} }

// Decode returns the text that ids complete. It does not hold back bytes that can't become valid
// UTF-8 any more.
func (d *StreamDecoder) Decode(ids ...int32) []byte {
	var text []byte
	for _, id := range ids {
		text = d.d.next(text, id)
	}
	return text
}

// Flush returns the text that is still held back, at the end.
func (d *StreamDecoder) Flush() []byte { return d.d.flush(nil) }

// pieces decodes ids whose text is that of each id, joined.
type pieces struct {
	tok  Tokenizer
	held []byte // the start of a character, at most utf8.UTFMax-1 bytes
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

// incomplete returns how many bytes at the end of a text start a character without completing it.
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
