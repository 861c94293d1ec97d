package tensorboard

// Folder is where a run's event files are, in its own folder.
const Folder = "tensorboard"

const (
	// limitTextBytes is the longest text that is written; more is cut off.
	limitTextBytes = 1 << 16
	// limitTagBytes is the longest name of a figure.
	limitTagBytes = 200
	// limitMetrics is how many figures of a model's own a step may have.
	limitMetrics = 64
	// limitFiles is how many files a folder of events may have when another one is made.
	limitFiles = 10_000
)
