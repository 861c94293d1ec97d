package ggufmodel

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// The keys that files of all architectures have.
const (
	architectureKey = "general.architecture"
	nameKey         = "general.name"
	fileTypeKey     = "general.file_type"
)

// quantizationVersion is ggml's version of its quantized types.
const quantizationVersion = 2

// Types returns the types that Write takes, and llama.cpp's number of a file of each.
var fileTypes = []struct {
	name   string
	tensor gguf.Type
	number uint32
}{{"f32", gguf.F32, 0}, {"f16", gguf.F16, 1}, {"bf16", gguf.BF16, 32}, {"q8_0", gguf.Q8_0, 7}}

// Tensor is a tensor of a model's folder.
type Tensor struct {
	Name  string
	DType string // "F32", "F16" or "BF16"
	Shape []int
	Data  func() ([]byte, error)
}

// Model is a model to write.
type Model struct {
	Name    string // general.name
	Config  []byte // config.json, with every key whose value is not transformers' default
	Text    Text
	Tensors []Tensor
	Type    string // "f32", "f16", "bf16" or "q8_0"
}

// writer collects the entries and tensors of a file.
type writer struct {
	arch     *architecture
	family   string
	settings *settings
	entries  []gguf.Entry
	tensors  []gguf.Tensor
	dtype    gguf.Type
	warnings []string

	tied                                             bool
	context, hidden, heads, kvHeads, headDim, layers int
	delta                                            deltaHeads
}

// Write lays out a GGUF file. The warnings say in which way llama.cpp computes something else than Troupe.
func Write(m Model) (p *gguf.Prepared, warnings []string, err error) {
	s, err := readSettings("config.json", m.Config)
	if err != nil {
		return nil, nil, err
	}
	w := &writer{settings: s, family: get(s, "model_type", "")}
	if w.arch, err = ofFamily(w.family); err != nil {
		return nil, nil, err
	}
	if m.Type == "" {
		m.Type = "f32"
	}
	number := uint32(0)
	known := false
	for _, t := range fileTypes {
		if t.name == m.Type {
			w.dtype, number, known = t.tensor, t.number, true
		}
	}
	if !known {
		return nil, nil, fmt.Errorf("%w: unknown type %q; use f32, f16, bf16 or q8_0", ErrUnsupported, m.Type)
	}
	vocab := w.general(m, number)
	if err := w.text(m.Text, vocab); err != nil {
		return nil, nil, err
	}
	for _, t := range m.Tensors {
		if err := w.tensor(t); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	s.rest(w.arch.name)
	if s.err != nil {
		return nil, nil, s.err
	}
	p, err = gguf.Prepare(w.entries, w.tensors)
	return p, w.warnings, err
}

// general writes what all architectures have, then the architecture's own keys, and returns the number of
// ids.
func (w *writer) general(m Model, fileType uint32) (vocab int) {
	s := w.settings
	s.ignore("architectures", "torch_dtype", "dtype", "initializer_range", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache",
		"transformers_version", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "cache_implementation",
		"pretraining_tp", "is_llama_config", "max_window_layers")
	w.tied = get(s, "tie_word_embeddings", false)
	if w.arch.headless && !w.tied {
		s.refuse("tie_word_embeddings is false, but llama.cpp's %s always ties the head", w.arch.name)
	}
	w.add(architectureKey, w.arch.name)
	w.add("general.type", "model")
	if m.Name != "" && !misread(m.Name, m.Text.Tokenizer) {
		w.add(nameKey, m.Name)
	}
	w.add("general.size_label", sizeLabel(m.Tensors))
	vocab = get(s, "vocab_size", 0)
	if w.arch.write != nil {
		w.arch.write(w)
	} else {
		w.rotary()
	}
	if w.arch.vocab {
		w.own("vocab_size", uint32(vocab))
	}
	w.add(fileTypeKey, fileType)
	w.add("general.quantization_version", uint32(quantizationVersion))
	return vocab
}

// misread reports whether llama.cpp cannot load a file with this name: in a model whose name has phi3 in it, it looks for
// the special tokens of Phi-3.
func misread(name string, t tokenizer.Tokenizer) bool {
	name = strings.ToLower(name)
	if t == nil || !strings.Contains(name, "phi3") && !strings.Contains(name, "phi-3") {
		return false
	}
	for _, token := range []string{"</s>", "<unk>", "<s>", "<|endoftext|>"} {
		if _, ok := t.TokenID(token); !ok {
			return true
		}
	}
	return false
}

// add appends an entry.
func (w *writer) add(key string, value any) {
	w.entries = append(w.entries, gguf.Entry{Key: key, Value: value})
}

// own appends an entry whose key starts with the architecture.
func (w *writer) own(key string, value any) { w.add(w.arch.name+"."+key, value) }

func (w *writer) warn(format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

// extra appends a tensor that Hugging Face's files do not have.
func (w *writer) extra(name string, values []float32) {
	data := safetensors.EncodeFloat32(values)
	w.tensors = append(w.tensors, gguf.Converted(name, gguf.F32, []int{len(values)}, "F32", func() ([]byte, error) { return data, nil }))
}

// tensor adds a tensor under its name in GGUF.
func (w *writer) tensor(t Tensor) error {
	name, c, ok := w.arch.names.translated(t.Name, true)
	if !ok {
		return fmt.Errorf("%w: llama.cpp's %s has no such tensor", ErrUnsupported, w.arch.name)
	}
	shape := t.Shape
	switch {
	case c == transposed:
		shape = swapped(shape)
	case c == valueConv && len(shape) == 3:
		shape = []int{shape[0], shape[2]}
	}
	to := w.typeOf(name, shape)
	from, data := t.DType, t.Data
	heads, onePlus := 0, c == normWeight && w.arch.onePlus
	switch {
	case c == queryRows && w.arch.permuted:
		heads = w.heads
	case c == keyRows && w.arch.permuted:
		heads = w.kvHeads
	case onePlus || c == valueDecays:
		from = "F32"
	}
	changed := func() ([]byte, error) {
		b, err := data()
		switch {
		case err != nil:
			return nil, err
		case heads > 0:
			return interleaved(b, t.Shape, heads, false)
		case c == transposed:
			return transpose(b, t.Shape, elementBytes(t.DType))
		case onePlus:
			return plus(t.DType, b, 1)
		case c.isDelta():
			return w.delta.changed(c, t.DType, b, t.Shape[0], false)
		}
		return b, nil
	}
	w.tensors = append(w.tensors, gguf.Converted(name, to, shape, from, changed))
	if name == "token_embd.weight" && w.arch.needHead && w.tied {
		w.tensors = append(w.tensors, gguf.Converted("output.weight", to, shape, from, changed))
	}
	return nil
}

func elementBytes(dtype string) int {
	if dtype == "F32" {
		return 4
	}
	return 2
}

// typeOf returns the type of a tensor, by the rules of llama.cpp's converter: vectors, norms, biases and
// learned positions stay in F32, and rows that are not whole blocks of Q8_0 are stored in F16.
func (w *writer) typeOf(name string, shape []int) gguf.Type {
	switch {
	case len(shape) < 2 || strings.HasSuffix(name, "_norm.weight") || !strings.HasSuffix(name, ".weight") || name == "position_embd.weight" ||
		strings.HasSuffix(name, ".ssm_conv1d.weight"):
		return gguf.F32
	case w.dtype == gguf.Q8_0 && shape[len(shape)-1]%gguf.BlockQ8 != 0:
		return gguf.F16
	}
	return w.dtype
}

// sizeLabel returns the number of parameters as in 135M.
func sizeLabel(tensors []Tensor) string {
	total := 0.0
	for _, t := range tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		total += float64(n)
	}
	scaled, unit := total/1e3, "K"
	switch {
	case total > 1e12:
		scaled, unit = total/1e12, "T"
	case total > 1e9:
		scaled, unit = total/1e9, "B"
	case total > 1e6:
		scaled, unit = total/1e6, "M"
	}
	digits := max(0, 2-len(strings.TrimLeft(fmt.Sprintf("%.0f", scaled), "0")))
	return fmt.Sprintf("%.*f%s", digits, scaled, unit)
}
