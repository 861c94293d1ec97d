package samples

import "github.com/troupe-ml/troupe/tensorops"

const (
	// limitRank limits the dimensions of a field of one sample: a microbatch has one more.
	limitRank = tensorops.MaxRank - 1
	// limitFields limits the fields of a sample.
	limitFields = 64
	// limitColumns limits the columns of a CSV file.
	limitColumns = 1 << 20
	// limitRowBytes limits a row of a CSV file and a line of JSON.
	limitRowBytes = 64 << 20
	// limitClasses limits the classes of a label.
	limitClasses = 1 << 24
	// limitClassNames limits the classes that have names.
	limitClassNames = 1 << 16
	// limitStreamAhead is how many of the last samples a StreamSource keeps, and how many it reads
	// ahead to reach one.
	limitStreamAhead = 4096
	// limitStreamAheadBytes limits the memory of the samples that a StreamSource keeps, except for
	// the last one.
	limitStreamAheadBytes = 256 << 20
	// limitIdentityBytes is the size of data up to which an Identity reads all of it. For more data
	// it reads limitIdentitySamples samples, spread over it.
	limitIdentityBytes = 1 << 30
	// limitIdentitySamples is the number of samples that represent data above limitIdentityBytes.
	limitIdentitySamples = 1 << 16

	// shownBytes and shownNames limit what an error shows of a file's content.
	shownBytes = 40
	shownNames = 8
)
