package hf

// The patterns of published byte-level tokenizers, by which programs recognize how a tokenizer splits texts.
const (
	PatternGPT2   = patternGPT2
	PatternLlama  = patternLlama // Llama 3, and cl100k
	PatternQwen   = patternQwen
	PatternQwen35 = patternQwen35
	PatternO200k  = patternO200k
)
