package tokenizer

import (
	"bytes"

	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// HF is the tokenizer described by a tokenizer.json: byte-level BPE, as in GPT-2, Llama 3 and Qwen,
// BPE of characters, as in Llama 2 and Gemma, Unigram, as in T5, or WordPiece, as in BERT. Its ids and texts equal those of the tokenizers
// library.
type HF struct {
	t    *hf.Tokenizer
	file []byte
}

// HFName is the name of every HF.
const HFName = "tokenizer.json"

func newHF(file []byte) (*HF, error) {
	t, err := hf.Parse(file)
	if err != nil {
		return nil, err
	}
	return &HF{t, bytes.Clone(file)}, nil
}

// Name returns HFName.
func (*HF) Name() string { return HFName }

// Vocab returns the largest id plus one.
func (h *HF) Vocab() int { return h.t.Vocab() }

// Encode returns a text's ids, without tokens that are added to it. Invalid UTF-8 counts as U+FFFD.
func (h *HF) Encode(text []byte) ([]int32, error) { return h.AppendEncode(nil, text) }

// AppendEncode is Encode into a buffer.
func (h *HF) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	return h.t.AppendEncode(dst, text, hf.Plain)
}

// Cut returns 0 for tokenizers whose ids for the parts of a text may differ from those for the
// whole, such as tokenizers that prepend a space.
func (h *HF) Cut(text []byte, most int) int { return h.t.Cut(text, most) }

// EncodeSpecial encodes the names of special tokens as these tokens. With add the post-processor
// adds its own tokens.
func (h *HF) EncodeSpecial(text []byte, add bool) ([]int32, error) {
	mode := hf.Special
	if add {
		mode = hf.Whole
	}
	return h.t.AppendEncode(nil, text, mode)
}

// EncodeSpans is Encode if plain, otherwise EncodeSpecial, and also returns the part of the text
// for each id. Invalid UTF-8 counts as U+FFFD.
func (h *HF) EncodeSpans(text []byte, plain bool) ([]int32, []Span, error) {
	if plain {
		return h.t.EncodeSpans(text, hf.Plain)
	}
	return h.t.EncodeSpans(text, hf.Special)
}

// Around returns the ids that the post-processor adds.
func (h *HF) Around() (before, after []int32) { return h.t.Around() }

// SpecialNames counts the names of special tokens in a text.
func (h *HF) SpecialNames(text []byte) int { return h.t.SpecialNames(text) }

// Decode returns the text of ids. Ids without a token have no text: models may have more ids than
// their tokenizer.
func (h *HF) Decode(ids []int32) []byte { return h.t.AppendDecode(nil, ids, true) }

// DecodeText is Decode without special tokens.
func (h *HF) DecodeText(ids []int32) []byte { return h.t.AppendDecode(nil, ids, false) }

// Token returns an id's name in the file.
func (h *HF) Token(id int32) (string, bool) { return h.t.Token(id) }

// TokenID returns the id of a token by its name in the file.
func (h *HF) TokenID(name string) (int32, bool) { return h.t.TokenID(name) }

// IsSpecial reports whether an id is a special token's.
func (h *HF) IsSpecial(id int32) bool { return h.t.IsSpecial(id) }

func (h *HF) newDecoder(special bool) decoder { return hfDecoder{h.t.NewDecoder(special)} }

type hfDecoder struct{ d *hf.Decoder }

func (d hfDecoder) next(dst []byte, id int32) []byte { return d.d.Next(dst, id) }
func (d hfDecoder) flush(dst []byte) []byte          { return d.d.Flush(dst) }

// Trainer makes a byte-level BPE tokenizer from texts.
type Trainer = hf.Trainer

// NewTrainer returns a Trainer without texts.
func NewTrainer() *Trainer { return hf.NewTrainer() }
