// Package tokenizer turns text into token ids and back. The ids of Bytes are the bytes themselves.
// The ids of Chars are the characters of a training text, in the order of their code points. An HF
// is described by a tokenizer.json of Hugging Face (package hf does the work). All are stored as a
// tokenizer.json that the tokenizers library reads (Marshal and Unmarshal). A StreamDecoder prints
// a text while it is being generated; Special has the ids that start and end texts.
//
// The package imports the standard library and hf. It must never know where a text comes from, how
// ids are stored, or what a model does with them.
package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// Tokenizer maps between text and ids in [0, Vocab). It is safe for concurrent use.
type Tokenizer interface {
	// Name is the tokenizer's name in a config.
	Name() string
	// Vocab returns the number of ids: the largest plus one.
	Vocab() int
	// Encode returns the ids of a text. The names of special tokens are ordinary text, as they
	// should be in text that people write and that models are trained on. An error about the text
	// is a *TextError.
	Encode(text []byte) ([]int32, error)
	// AppendEncode is Encode into the caller's buffer, so that a long text can be encoded piece by
	// piece without garbage. On an error it returns dst unchanged.
	AppendEncode(dst []int32, text []byte) ([]int32, error)
	// Cut returns a place in a text of more than most bytes, at most that far from its start, at
	// which it may be cut: encoding both parts gives the ids of the whole. 0: there is none.
	Cut(text []byte, most int) int
	// EncodeSpecial returns the ids of a text in which the names of special tokens stand for these
	// tokens, as in the output of a chat template. With add it is the default of a tokenizer: it
	// adds tokens such as the one that starts a text.
	EncodeSpecial(text []byte, add bool) ([]int32, error)
	// EncodeSpans returns the ids of a text, and the part of the text for each. The names of
	// special tokens stand for these tokens or, with plain, are ordinary text.
	EncodeSpans(text []byte, plain bool) ([]int32, []Span, error)
	// Around returns the ids that EncodeSpecial, with add, puts before and after a text.
	Around() (before, after []int32)
	// SpecialNames counts the names of special tokens in a text.
	SpecialNames(text []byte) int
	// Decode returns the text of ids, with special tokens by name. An incomplete character becomes
	// U+FFFD; Bytes returns its bytes instead.
	Decode(ids []int32) []byte
	// DecodeText is Decode without special tokens.
	DecodeText(ids []int32) []byte
	// Token returns the name of an id in a tokenizer.json.
	Token(id int32) (name string, ok bool)
	// TokenID returns the id of a token, including special ones, by that name.
	TokenID(name string) (id int32, ok bool)
	// IsSpecial reports whether an id is a special token.
	IsSpecial(id int32) bool
	// newDecoder starts a text that arrives id by id.
	newDecoder(special bool) decoder
}

// LeastIDs returns the fewest ids of a text of this length in bytes; 0: unknown, as a tokenizer may leave parts of a text out, or join
// any number of them.
func LeastIDs(t Tokenizer, bytes int) int {
	longest := 0
	switch t := t.(type) {
	case Bytes:
		longest = 1
	case *Chars:
		longest = utf8.UTFMax
	case *HF:
		longest = t.t.Longest()
	}
	if longest == 0 {
		return 0
	}
	return (bytes + longest - 1) / longest
}

// Span is a part of a text: from a byte to before another one.
type Span = hf.Span

// decoder decodes ids one by one. The text is everything that its calls append.
type decoder interface {
	// next appends the text that an id completes.
	next(dst []byte, id int32) []byte
	// flush appends the text that is still held back, at the end.
	flush(dst []byte) []byte
}

// ErrUnsupported: a tokenizer can't be used exactly as intended; the error names the part.
var ErrUnsupported = hf.ErrUnsupported

// replacement is the text of an id without one.
const replacement = "\uFFFD"

// TextError says what is wrong with a text, and where. Offset counts bytes from the start of the
// text that was passed. A caller that knows the file can state the place better, and use Err alone.
type TextError struct {
	Offset int
	Err    error
}

func (e *TextError) Error() string { return fmt.Sprintf("byte %d: %v", e.Offset, e.Err) }

// Unwrap returns the error without the place.
func (e *TextError) Unwrap() error { return e.Err }

// ByteOffset returns Offset, for callers that recognize this error by its methods.
func (e *TextError) ByteOffset() int { return e.Offset }
