package draw

// The limits of this package. All are checked before anything is written.
const (
	// MaxBoxes bounds the actions of all charts of a picture or page. Browsers can still scroll that many.
	MaxBoxes = 200_000
	// MaxStepActions bounds the actions of a step that a script draws.
	MaxStepActions = 1 << 22
	// maxGaps bounds the listed gaps of such a step; sums include all. maxWaits bounds the listed pairs of ranks.
	maxGaps  = 1 << 18
	maxWaits = 12
	// maxFallback bounds the actions of a page's picture for browsers without scripts, which takes ten times as many
	// bytes as the script's data.
	maxFallback = 20_000
	// MaxCells bounds the product of a text's columns and lanes.
	MaxCells = 1_000_000
	// MaxListed bounds the actions of a table that Summary lists if full is not set.
	MaxListed = 1_000_000
	// maxTime bounds all times, so that nanoseconds fit in 63 bits. In milliseconds it is 30 years.
	maxTime = 1e12
	// leastTime is the makespan below which a picture is not stretched to its usual width, since the pixels of a unit
	// would overflow.
	leastTime = 1e-12
	// maxPixels bounds the width of a picture. Boxes that become too narrow have no number.
	maxPixels = 40_000
	// maxShades bounds the shades for the chunks of a rank.
	maxShades = 8
	// maxQuoted bounds the bytes of a name in an error.
	maxQuoted = 40
)
