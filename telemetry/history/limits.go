package history

// The limits of this package.
const (
	// LimitRows bounds the rows of a file that is read: some 20 GB of lines, which would take
	// 9 GB of memory.
	LimitRows = 1 << 26
	// LimitMetrics bounds the names of metrics in a file, those of validations counted too.
	LimitMetrics = 4096
	// LimitBuckets bounds the buckets of one answer.
	LimitBuckets = 100_000
	// limitReaders bounds the goroutines that read blocks. Each has a block, and the file's
	// reader one more.
	limitReaders = 16
	// leastLine is added to the length of a block's first line where that stands for the others.
	leastLine = 16
	// blockBytes is the size of a block, unless a line is longer.
	blockBytes = 4 << 20
)
