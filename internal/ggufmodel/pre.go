package ggufmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/tokenizer/hf"
)

// splitting is how a byte-level tokenizer divides texts into words before it merges bytes, and how it
// treats a word that is a token.
type splitting struct {
	digits  bool   // each digit is a word
	pattern string // the words of a text; "": none
	ignore  bool   // ignore_merges: a word that is a token is not divided
}

// pres are llama.cpp's names of pre-tokenizers (tokenizer.ggml.pre). The first name is written, and all are
// read. composed: the published tokenizers with this name first normalize to NFC, which llama.cpp does not do.
var pres = []struct {
	splitting
	composed bool
	names    []string
}{
	{splitting{pattern: hf.PatternGPT2}, false, []string{"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "a.x-4.0", "mellum",
		"modern-bert"}},
	{splitting{pattern: hf.PatternGPT2, digits: true}, false,
		[]string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}},
	{splitting{pattern: hf.PatternLlama, ignore: true}, false,
		[]string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}},
	{splitting{pattern: hf.PatternLlama}, false, []string{"dbrx", "smaug-bpe"}},
	{splitting{pattern: hf.PatternQwen}, true, []string{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}},
	{splitting{pattern: hf.PatternQwen}, false, []string{"stablelm2", "hunyuan", "solar-open", "grok-2"}},
	{splitting{pattern: hf.PatternQwen35}, true, []string{"qwen35"}},
	{splitting{pattern: hf.PatternO200k}, false, []string{"gpt-4o", "llama4", "kanana2"}},
}

// preName returns the name of a splitting. composed says whether the tokenizer normalizes to NFC.
func preName(s splitting, composed bool) (string, error) {
	if s.pattern == "" { // every byte is a token
		s.pattern, s.digits = hf.PatternGPT2, false
	}
	found := ""
	for _, p := range pres {
		if p.splitting == s && (found == "" || p.composed == composed) {
			found = p.names[0]
		}
	}
	if found == "" {
		return "",
			fmt.Errorf("%w: llama.cpp has no pre-tokenizer that splits texts as this tokenizer does: digits apart %t, ignore_merges %t, pattern %q",
				ErrUnsupported, s.digits, s.ignore, s.pattern)
	}
	return found, nil
}

// preOf returns the splitting with a name.
func preOf(name string) (s splitting, composed bool, err error) {
	var known []string
	for _, p := range pres {
		if slices.Contains(p.names, name) {
			return p.splitting, p.composed, nil
		}
		known = append(known, p.names...)
	}
	return s, false, fmt.Errorf("%w: %s is %q; Troupe knows %s", ErrUnsupported, preKey, name, strings.Join(known, ", "))
}

// part is a normalizer, pre-tokenizer or decoder in a tokenizer.json.
type part struct {
	Type          string
	Normalizers   []part
	Pretokenizers []part
	Pattern       struct{ String, Regex string }
	Behavior      string
	Invert        bool
	Content       string
	Prepend       string
	Individual    bool   `json:"individual_digits"`
	PrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex      *bool  `json:"use_regex"`
	Scheme        string `json:"prepend_scheme"`
}

// flat returns the parts of sequences.
func (p *part) flat() (all []part) {
	if p == nil {
		return nil
	}
	if p.Type != "Sequence" {
		return []part{*p}
	}
	for _, inner := range append(p.Normalizers, p.Pretokenizers...) {
		all = append(all, inner.flat()...)
	}
	return all
}

// file is what a tokenizer.json says, as far as a GGUF file has a place for it.
type file struct {
	Added []struct {
		Content string
		Special bool
	} `json:"added_tokens"`
	Normalizer   *part
	PreTokenizer *part `json:"pre_tokenizer"`
	Model        struct {
		Type         string
		Merges       json.RawMessage
		Vocab        map[string]int32
		Unk          *string `json:"unk_token"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
	}
}

// split returns the splitting of a byte-level tokenizer.
func (f *file) split() (s splitting, err error) {
	s.ignore = f.Model.IgnoreMerges
	bytes := false
	for i, p := range f.PreTokenizer.flat() {
		pattern := ""
		switch {
		case p.Type == "Digits" && p.Individual && i == 0, p.Type == "Split" && p.Pattern.Regex == `\p{N}` && i == 0:
			s.digits = true
		case p.Type == "Split" && p.Pattern.Regex != "" && (p.Behavior == "Isolated" || p.Behavior == "Removed" && p.Invert):
			pattern = p.Pattern.Regex
		case p.Type == "ByteLevel" && (p.PrefixSpace == nil || !*p.PrefixSpace):
			bytes = true
			if p.UseRegex == nil || *p.UseRegex {
				pattern = hf.PatternGPT2
			}
		default:
			return s, fmt.Errorf("%w: the pre_tokenizer of tokenizer.json has the part %s, which llama.cpp does not have", ErrUnsupported, p.Type)
		}
		if pattern != "" && s.pattern != "" {
			return s, fmt.Errorf("%w: the pre_tokenizer of tokenizer.json has two patterns", ErrUnsupported)
		}
		s.pattern += pattern
	}
	if !bytes {
		return s, fmt.Errorf("%w: the tokenizer is neither byte-level BPE nor SentencePiece's BPE", ErrUnsupported)
	}
	return s, nil
}
