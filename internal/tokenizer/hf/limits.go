package hf

const (
	// MaxFileBytes is the size of the largest tokenizer.json that is read.
	MaxFileBytes = 64 << 20
	// maxTokens limits ids, so that a table by id is not larger than a file justifies.
	maxTokens = 1 << 24
	// sparseTokens is the largest id if there are few tokens; with many it may be 16 times their
	// number.
	sparseTokens = 1 << 16
	// maxTrieBytes limits the tokens of a Unigram or WordPiece vocabulary together: each of their bytes
	// may need a place in a table of 12 bytes.
	maxTrieBytes = 1 << 23
	// unigramPart is how many bytes of a long word are encoded at a time, up to the next place that no token
	// crosses.
	unigramPart = 1 << 12
	// maxCharsmapBytes is the size of the largest precompiled_charsmap; that of NFKC has 240 kB.
	maxCharsmapBytes = 4 << 20
	// maxSteps limits the parts of a sequence, and how deeply sequences are nested.
	maxSteps = 100
	// maxCachedBytes is the length of the longest word that is cached.
	maxCachedBytes = 256
	// cacheSlots and cacheBytes limit the words that a worker caches. When either is full the cache
	// is cleared.
	cacheSlots = 1 << 15
	cacheBytes = 1 << 21
	// maxBacktracking limits the numbers that an unknown pattern may keep while it searches for a
	// match; a pattern that needs more is an error.
	maxBacktracking = 1 << 22
	// maxKeptSymbols is the longest word whose memory is kept for the next one.
	maxKeptSymbols = 1 << 16
	// maxKeptBytes is the same for normalized texts.
	maxKeptBytes = 1 << 22
)
