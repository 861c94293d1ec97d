package hf

const (
	// MaxFileBytes is the longest tokenizer.json that is read.
	MaxFileBytes = 64 << 20
	// maxTokens bounds ids, so that a table by id is no larger than what a file can fill.
	maxTokens = 1 << 24
	// sparseTokens is the largest id of a few tokens; of many it may be 16 times their number.
	sparseTokens = 1 << 16
	// maxSteps bounds the parts of a sequence, and how deep sequences lie in one another.
	maxSteps = 100
	// maxCachedBytes is the longest word that is kept with its ids.
	maxCachedBytes = 256
	// cacheSlots and cacheBytes bound the words that a worker keeps. When either is full the
	// cache begins anew.
	cacheSlots = 1 << 15
	cacheBytes = 1 << 21
	// maxBacktracking is how many numbers a pattern that is not known may keep while it looks
	// for a match; one that needs more is an error.
	maxBacktracking = 1 << 22
	// maxKeptSymbols is the longest word of which the memory is kept for the next one.
	maxKeptSymbols = 1 << 16
	// maxKeptBytes is so for normalized texts.
	maxKeptBytes = 1 << 22
)
