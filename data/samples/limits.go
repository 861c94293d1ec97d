package samples

import "github.com/troupe-ml/troupe/tensorops"

const (
	// limitRank bounds the dimensions of a field of one sample: a microbatch has one more.
	limitRank = tensorops.MaxRank - 1
	// limitFields bounds the fields of a sample.
	limitFields = 64
	// limitColumns bounds the columns of a CSV file.
	limitColumns = 1 << 20
	// limitRowBytes bounds a row of a CSV file and a line of JSON.
	limitRowBytes = 64 << 20
	// limitClasses bounds the classes of a label.
	limitClasses = 1 << 24
	// limitClassNames bounds those that have names.
	limitClassNames = 1 << 16
	// limitStreamAhead is how many of the samples that were read last a StreamSource keeps,
	// and how many it reads ahead to get to one.
	limitStreamAhead = 4096
	// limitStreamAheadBytes bounds the samples that a StreamSource keeps, but for the last one.
	limitStreamAheadBytes = 256 << 20
	// limitIdentityBytes is how much data an Identity reads whole. Of more it reads
	// limitIdentitySamples samples from all over it.
	limitIdentityBytes = 1 << 30
	// limitIdentitySamples is how many samples stand for data above limitIdentityBytes.
	limitIdentitySamples = 1 << 16

	// shownBytes and shownNames bound what an error shows of a file's content.
	shownBytes = 40
	shownNames = 8
)
