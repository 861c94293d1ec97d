package scheduler

// The limits of this package, all checked before memory is allocated.
const (
	// MaxActions bounds the actions of one table. 1024 ranks with 4 chunks and
	// 4096 microbatches need half of it.
	MaxActions = 1 << 26
	// MaxSkips bounds the skip edges of one table: each chunk of 256 could have one to every
	// other.
	MaxSkips = 1 << 15
	// MaxTableBytes bounds the text of a table. It is 16 bytes for each of the most
	// actions.
	MaxTableBytes = 1 << 30
	// MaxLayoutSymbols bounds a layout's symbols and splits after its
	// repetitions are expanded.
	MaxLayoutSymbols = 1 << 16
	// maxBalanceWork bounds the costs of chunks that are looked at to spread a model's parts,
	// which takes some tens of milliseconds.
	maxBalanceWork = 1 << 24
	// balanceMoves bounds how many parts are moved at once to see whether it helps.
	balanceMoves = 8
	// balanceHalvings bounds the search for the least costliest chunk, to the last bit.
	balanceHalvings = 64
	// MaxPeriodActions bounds the actions of a table whose period is told, which takes
	// several plays.
	MaxPeriodActions = 100_000
	// periodSteps bounds the plays that a period is told from.
	periodSteps = 16
	// maxQuoted bounds how many bytes of a bad input an error repeats.
	maxQuoted = 40
)
