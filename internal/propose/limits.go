package propose

const (
	// limitLookBytes bounds what is read of all files together, except for the start of each.
	limitLookBytes = 16 << 20
	// limitHeadBytes is the start that is read of each file.
	limitHeadBytes = 64 << 10
	// limitRows bounds the rows of CSV and JSON lines that are looked at.
	limitRows = 20_000
	// packedFactor is how much larger the content of a compressed file usually is.
	packedFactor = 3
)
