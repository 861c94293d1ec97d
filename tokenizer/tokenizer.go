// Package tokenizer turns text into token ids and back. There are two: Bytes,
// whose ids are the bytes themselves, and Chars, whose ids are the characters of
// a training text in the order of their code points. Both are stored as a
// tokenizer.json that Hugging Face's tokenizers library reads (Marshal and
// Unmarshal), and a StreamDecoder prints a text while it is being generated.
//
// The package imports the standard library alone. It must never know where a
// text comes from, how ids are stored, or what a model does with them.
package tokenizer

import (
	"errors"
	"fmt"
)

// Tokenizer is a mapping between text and ids in [0, Vocab). Its ids are the
// same whether a text is encoded whole or in pieces cut between characters. It
// is safe for concurrent use.
type Tokenizer interface {
	// Name is what a config calls the tokenizer.
	Name() string
	// Vocab is the number of ids.
	Vocab() int
	// Encode returns the ids of a text. An error about the text is a
	// *TextError.
	Encode(text []byte) ([]int32, error)
	// AppendEncode is Encode into a buffer that the caller keeps, so that a
	// long text can be encoded piece by piece without garbage. On an error it
	// returns dst as it was.
	AppendEncode(dst []int32, text []byte) ([]int32, error)
	// Decode returns the text of ids. An id outside the vocabulary becomes
	// U+FFFD: a model may have more ids than its tokenizer.
	Decode(ids []int32) []byte
}

// ErrUnsupported is in the chain of an error about a tokenizer that is none of
// the two kinds.
var ErrUnsupported = errors.New("unsupported tokenizer")

// replacement stands for an id that has no text.
const replacement = "\uFFFD"

// TextError says what is wrong with a text, and where: Offset counts bytes from
// the beginning of the text that was passed. Who knows the file can say the
// place better, and take Err alone.
type TextError struct {
	Offset int
	Err    error
}

func (e *TextError) Error() string { return fmt.Sprintf("byte %d: %v", e.Offset, e.Err) }

// Unwrap returns what is wrong, without the place.
func (e *TextError) Unwrap() error { return e.Err }

// ByteOffset returns Offset, for callers that know this error by its methods.
func (e *TextError) ByteOffset() int { return e.Offset }
