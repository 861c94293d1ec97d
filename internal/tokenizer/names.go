package tokenizer

import "github.com/troupe-ml/troupe/internal/tokenizer/hf"

// WithNames returns a tokenizer whose AppendEncode encodes the names of special tokens as these
// tokens, like EncodeSpecial. A text may be cut at the same places.
func WithNames(tok Tokenizer) Tokenizer { return withNames{tok} }

type withNames struct{ Tokenizer }

func (n withNames) Encode(text []byte) ([]int32, error) { return n.AppendEncode(nil, text) }

func (n withNames) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	if h, ok := n.Tokenizer.(*HF); ok {
		return h.t.AppendEncode(dst, text, hf.Special)
	}
	return n.Tokenizer.AppendEncode(dst, text)
}
