package samples

import "github.com/troupe-ml/troupe/tensorops"

const (
	// LimitRank bounds the dimensions of a field of one sample: a microbatch has one more.
	LimitRank = tensorops.MaxRank - 1
	// LimitFields bounds the fields of a sample.
	LimitFields = 64
	// LimitColumns bounds the columns of a CSV file.
	LimitColumns = 1 << 20
	// LimitRowBytes bounds a row of a CSV file and a line of JSON.
	LimitRowBytes = 64 << 20
	// LimitClasses bounds the classes of a label.
	LimitClasses = 1 << 24
	// LimitClassNames bounds those that have names.
	LimitClassNames = 1 << 16
	// LimitStreamAhead is how many of the samples that were read last a StreamSource keeps,
	// and how many it reads ahead to get to one.
	LimitStreamAhead = 4096
	// LimitStreamAheadBytes bounds the samples that a StreamSource keeps, but for the last one.
	LimitStreamAheadBytes = 256 << 20
	// LimitIdentityBytes is how much data an Identity reads whole. Of more it reads
	// LimitIdentitySamples samples from all over it.
	LimitIdentityBytes = 1 << 30
	// LimitIdentitySamples is how many samples stand for data above LimitIdentityBytes.
	LimitIdentitySamples = 1 << 16

	// shownBytes and shownNames bound what an error shows of a file's content.
	shownBytes = 40
	shownNames = 8
)
