// Package tokenizer turns text into token ids and back. Bytes' ids are the bytes themselves,
// Chars' the characters of a training text in the order of their code points, and an HF is
// what a tokenizer.json of Hugging Face's describes (package hf does the work). All are
// stored as a tokenizer.json that the tokenizers library reads (Marshal and Unmarshal). A
// StreamDecoder prints a text while it is being generated; Special has the ids that begin
// and end texts.
//
// The package imports the standard library and hf. It must never know where a text comes
// from, how ids are stored, or what a model does with them.
package tokenizer

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// Tokenizer is a mapping between text and ids in [0, Vocab). It is safe for
// concurrent use.
type Tokenizer interface {
	// Name is what a config calls the tokenizer.
	Name() string
	// Vocab is the number of ids: one more than the largest.
	Vocab() int
	// Encode returns the ids of a text in which the names of special tokens are
	// text like any other, as they should be in what people write and models are
	// trained on. An error about the text is a *TextError.
	Encode(text []byte) ([]int32, error)
	// AppendEncode is Encode into a buffer that the caller keeps, so that a
	// long text can be encoded piece by piece without garbage. On an error it
	// returns dst as it was.
	AppendEncode(dst []int32, text []byte) ([]int32, error)
	// Cut returns a place in a text of more than most bytes, at most that far
	// from its beginning, at which it may be cut: encoding both parts gives the
	// ids of the whole. 0: there is none.
	Cut(text []byte, most int) int
	// EncodeSpecial returns the ids of a text in which the names of special tokens
	// stand for them, as in what a chat template makes. With add it is what a
	// tokenizer does with a text by default: tokens such as the one that begins a
	// text are added.
	EncodeSpecial(text []byte, add bool) ([]int32, error)
	// EncodeSpans returns the ids of a text, and which part of the text each stands for. The names of
	// special tokens stand for them, or with plain are text like any other.
	EncodeSpans(text []byte, plain bool) ([]int32, []Span, error)
	// Around are the ids that EncodeSpecial, with add, puts in front of a text and after it.
	Around() (before, after []int32)
	// SpecialNames counts the names of special tokens in a text.
	SpecialNames(text []byte) int
	// Decode returns the text of ids, special tokens by their names. A character of
	// which only a part is there becomes U+FFFD, but for Bytes, which gives its bytes.
	Decode(ids []int32) []byte
	// DecodeText is Decode without special tokens.
	DecodeText(ids []int32) []byte
	// Token returns the name of an id as a tokenizer.json has it.
	Token(id int32) (name string, ok bool)
	// TokenID returns the id of a token, special ones among them, by that name.
	TokenID(name string) (id int32, ok bool)
	// IsSpecial reports whether an id is a special token's.
	IsSpecial(id int32) bool
	// newDecoder begins a text that comes id by id.
	newDecoder(special bool) decoder
}

// Span is a part of a text: from a byte to before another one.
type Span = hf.Span

// decoder decodes ids one by one. All that its calls append, joined, is the text.
type decoder interface {
	// next appends the text that an id completes.
	next(dst []byte, id int32) []byte
	// flush appends what is still held back, at the end of the text.
	flush(dst []byte) []byte
}

// ErrUnsupported is in the chain of an error about a tokenizer that can't be used as it is
// meant: it names the part.
var ErrUnsupported = hf.ErrUnsupported

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
