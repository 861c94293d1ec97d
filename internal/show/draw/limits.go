package draw

// The limits of this package, all checked before anything is written.
const (
	// MaxBoxes bounds the actions of all charts of one picture or page. A browser
	// still scrolls that many.
	MaxBoxes = 200_000
	// MaxStepActions bounds the actions of a step that a script draws.
	MaxStepActions = 1 << 22
	// maxGaps bounds the gaps of such a step that are listed; sums are of all. maxWaits
	// bounds the pairs of ranks that are listed.
	maxGaps  = 1 << 18
	maxWaits = 12
	// maxFallback bounds the actions of the picture that a page has for browsers without
	// scripts: it takes ten times what the script's numbers do.
	maxFallback = 20_000
	// MaxCells bounds the columns of a text, times its lanes.
	MaxCells = 1_000_000
	// MaxListed bounds the actions of a table that Summary lists without being asked
	// to.
	MaxListed = 1_000_000
	// maxTime bounds all times, so that nanoseconds fit 63 bits. As milliseconds it
	// is 30 years.
	maxTime = 1e12
	// leastTime is the makespan below which a picture is not stretched to its usual
	// width: the pixels of a unit would overflow.
	leastTime = 1e-12
	// maxPixels bounds the width of a picture. What gets too narrow for its number
	// then stands without.
	maxPixels = 40_000
	// maxShades bounds the shades in which the chunks of a rank are told apart.
	maxShades = 8
	// maxQuoted bounds how many bytes of a name an error repeats.
	maxQuoted = 40
)
