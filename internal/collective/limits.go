package collective

// LimitPending limits the collectives that a member has started and that are incomplete.
const LimitPending = 1024

// LimitMembers limits the members of a group.
const LimitMembers = 4096

const (
	// blockLen is the number of elements that are reduced at a time: the operands and the sum of a
	// block fit in the first-level cache.
	blockLen = 2048
	// chunkBytes is what one of several goroutines takes at a time.
	chunkBytes = 256 << 10
	// inlineBytes is how much work is done where the last member starts a collective, instead of by
	// goroutines: as much as takes them to begin.
	inlineBytes = 64 << 10
	// pastBytes is the length from which a result isn't left in the caches: they don't hold it anyway.
	pastBytes = 4 << 20
)
