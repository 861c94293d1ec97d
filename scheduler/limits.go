package scheduler

// The limits of this package. All are checked before memory is allocated.
const (
	// MaxActions limits the actions of one table. 1024 ranks with 4 chunks and 4096 microbatches
	// need half of it.
	MaxActions = 1 << 26
	// MaxParts limits the parts of an action.
	MaxParts = 1 << 12
	// MaxSkips limits the skip edges of one table. It allows one between any two of 256 chunks.
	MaxSkips = 1 << 15
	// MaxTableBytes limits the text of a table, in bytes. It is 16 bytes for each of MaxActions
	// actions.
	MaxTableBytes = 1 << 30
	// MaxLayoutSymbols limits a layout's symbols and chunk ends after its repetitions are expanded.
	MaxLayoutSymbols = 1 << 16
	// maxBalanceWork limits how many chunk costs are examined to spread a model's parts, which
	// takes some tens of milliseconds.
	maxBalanceWork = 1 << 24
	// balanceMoves limits how many parts are moved at once to see whether the layout improves.
	balanceMoves = 8
	// balanceHalvings limits the bisection for the cheapest costliest chunk; it reaches the last
	// bit.
	balanceHalvings = 64
	// MaxPeriodActions limits the actions of a table for which SteadyStateStep computes a period,
	// which takes several simulations.
	MaxPeriodActions = 100_000
	// periodSteps limits the steps that are simulated to find a period.
	periodSteps = 16
	// maxQuoted limits how many bytes of a bad input an error repeats.
	maxQuoted = 40
)
