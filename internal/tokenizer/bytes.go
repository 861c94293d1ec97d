package tokenizer

import "slices"

// Bytes is the tokenizer whose ids are bytes. It needs no vocabulary and encodes any data.
type Bytes struct{}

// Name returns "bytes".
func (Bytes) Name() string { return "bytes" }

// Vocab returns 256.
func (Bytes) Vocab() int { return 256 }

// Encode returns one id for each byte. The error is always nil.
func (b Bytes) Encode(text []byte) ([]int32, error) { return b.AppendEncode(nil, text) }

// AppendEncode appends one id for each byte. The error is always nil.
func (Bytes) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	dst = slices.Grow(dst, len(text))
	for _, b := range text {
		dst = append(dst, int32(b))
	}
	return dst, nil
}

// EncodeSpecial is Encode: there are no special tokens.
func (b Bytes) EncodeSpecial(text []byte, _ bool) ([]int32, error) { return b.Encode(text) }

// EncodeSpans is Encode, with the position of each byte.
func (b Bytes) EncodeSpans(text []byte, _ bool) ([]int32, []Span, error) {
	ids, err := b.Encode(text)
	spans := make([]Span, len(ids))
	for i := range spans {
		spans[i] = Span{From: int32(i), To: int32(i) + 1}
	}
	return ids, spans, err
}

// Around returns nothing: a text is its bytes.
func (Bytes) Around() (before, after []int32) { return nil, nil }

// SpecialNames returns 0: there are no special tokens.
func (Bytes) SpecialNames([]byte) int { return 0 }

// Cut returns most: a text may be cut anywhere.
func (Bytes) Cut(_ []byte, most int) int { return most }

// DecodeText is Decode.
func (b Bytes) DecodeText(ids []int32) []byte { return b.Decode(ids) }

// Token returns the byte's spelling in byte-level BPE.
func (Bytes) Token(id int32) (string, bool) {
	if id < 0 || id > 255 {
		return "", false
	}
	return byteWords()[id], true
}

// TokenID returns the byte with the given spelling.
func (Bytes) TokenID(name string) (int32, bool) {
	id := slices.Index(byteWords(), name)
	return int32(id), id >= 0
}

// IsSpecial returns false.
func (Bytes) IsSpecial(int32) bool { return false }

func (b Bytes) newDecoder(bool) decoder { return &pieces{tok: b} }

// Decode returns the bytes; they need not be valid UTF-8.
func (Bytes) Decode(ids []int32) []byte {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		if id < 0 || id > 255 {
			text = append(text, replacement...)
			continue
		}
		text = append(text, byte(id))
	}
	return text
}
