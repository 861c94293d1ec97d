package ggufmodel

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported: a model, or a part of it, has no form in the other format.
var ErrUnsupported = errors.New("not supported")

// architecture is a family of models as llama.cpp knows it.
type architecture struct {
	name     string   // general.architecture
	families []string // model_type of config.json; the first is that of a file that is read
	class    string   // of transformers, for a file that is read
	names    names    // of tensors in a layer
	permuted bool     // llama.cpp rotates neighboring channels, so rows of q and k are permuted
	vocab    bool     // the converter writes vocab_size
	plainDim bool     // the converter writes no key_length, so a head has hidden/heads channels
	onePlus  bool     // norms compute with 1+w, and the file has 1+w
	context  int      // positions that transformers assumes without max_position_embeddings
	theta    float64  // the same for rope_theta
	headless bool     // llama.cpp always ties the head
	needHead bool     // llama.cpp never ties the head
	windows  bool     // llama.cpp has windows for some of the layers
	partial  float64  // share of the channels that rotate without partial_rotary_factor; 0: all
	// tokenizer is llama.cpp's name of SentencePiece's BPE with merges; "": with scores.
	tokenizer string
	write     func(w *writer)
	read      func(r *reader)
}

// architectures returns the table of families.
func architectures() []*architecture {
	llama := architecture{names: llamaNames, theta: 10000}
	with := func(name, class string, change func(a *architecture), families ...string) *architecture {
		a := llama
		a.name, a.class, a.families = name, class, families
		if change != nil {
			change(&a)
		}
		return &a
	}
	return []*architecture{
		{name: "gpt2", class: "GPT2LMHeadModel", families: []string{"gpt2"}, names: gpt2Names, write: writeGPT2, read: readGPT2},
		with("llama", "LlamaForCausalLM", func(a *architecture) { a.permuted, a.vocab = true, true; a.context = 2048 }, "llama", "mistral"),
		with("qwen2", "Qwen2ForCausalLM", func(a *architecture) { a.context = 32768 }, "qwen2"),
		with("qwen3", "Qwen3ForCausalLM", func(a *architecture) { a.context = 32768 }, "qwen3"),
		with("qwen35", "Qwen3_5ForCausalLM", func(a *architecture) {
			a.names, a.onePlus, a.context, a.partial, a.write, a.read = qwen35Names, true, 32768, qwen35Share, writeQwen35, readQwen35
		}, "qwen3_5_text"),
		with("smollm3", "SmolLM3ForCausalLM", func(a *architecture) {
			a.permuted, a.vocab, a.context, a.theta, a.write, a.read = true, true, 32768, 2e6, writeSmolLM3, readSmolLM3
		}, "smollm3"),
		with("granite", "GraniteForCausalLM", func(a *architecture) {
			a.permuted, a.vocab, a.plainDim, a.context, a.write, a.read = true, true, true, 2048, writeGranite, readGranite
		}, "granite"),
		with("olmo2", "Olmo2ForCausalLM", func(a *architecture) {
			a.names, a.needHead, a.windows, a.context, a.theta, a.write, a.read = olmo2Names, true, true, 2048, 500000, writeOlmo2, readOlmo2
		}, "olmo2", "olmo3"),
		with("phi3", "Phi3ForCausalLM", func(a *architecture) {
			a.names, a.plainDim, a.context, a.write, a.read = phi3Names, true, 4096, writePhi3, readPhi3
		}, "phi3"),
		with("gemma2", "Gemma2ForCausalLM", func(a *architecture) {
			a.names, a.onePlus, a.headless, a.windows, a.context, a.write, a.read = gemmaNames, true, true, true, 8192, writeGemma2, readGemma2
		}, "gemma2"),
		with("gemma3", "Gemma3ForCausalLM", func(a *architecture) {
			a.names, a.onePlus, a.windows, a.context, a.theta, a.write, a.read = gemmaNames, true, true, 131072, 1e6, writeGemma3, readGemma3
		}, "gemma3_text"),
		with("gemma4", "Gemma4ForCausalLM", func(a *architecture) {
			a.names, a.windows, a.context, a.theta, a.write, a.read = gemma4Names, true, 131072, 1e6, writeGemma4, readGemma4
			a.tokenizer = gemma4Tokenizer
		}, "gemma4_text"),
	}
}

// ofFamily returns the architecture of a model_type.
func ofFamily(family string) (*architecture, error) {
	var known []string
	for _, a := range architectures() {
		for _, f := range a.families {
			if f == family {
				return a, nil
			}
			known = append(known, f)
		}
	}
	return nil, fmt.Errorf("%w: models of family %q cannot be written as GGUF; %s can", ErrUnsupported, family, strings.Join(known, ", "))
}

// named returns the architecture with a general.architecture.
func named(name string) (*architecture, error) {
	var known []string
	for _, a := range architectures() {
		if a.name == name {
			return a, nil
		}
		known = append(known, a.name)
	}
	return nil, fmt.Errorf("%w: %s is %q; Troupe reads %s", ErrUnsupported, architectureKey, name, strings.Join(known, ", "))
}
