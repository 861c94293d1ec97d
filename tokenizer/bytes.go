package tokenizer

import "slices"

// Bytes is the tokenizer without a vocabulary to build: an id is a byte. It
// encodes anything.
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
