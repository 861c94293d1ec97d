package history

// The limits of this package.
const (
	// LimitRows bounds the rows of a file: about 20 GB of lines, which would take 9 GB of memory.
	LimitRows = 1 << 26
	// LimitMetrics bounds the names of the model's own metrics in a file, including those of validations.
	LimitMetrics = 4096
	// LimitBuckets bounds the buckets of one call of Series.
	LimitBuckets = 100_000
	// limitReaders bounds the goroutines that parse blocks. Each has a block, and the file's reader has one more.
	limitReaders = 16
	// leastLine is added to the length of a block's first line to estimate the length of the others.
	leastLine = 16
	// blockBytes is the size of a block, unless a line is longer.
	blockBytes = 4 << 20
)
