package tensorboard

// Folder is the name of the folder for event files in a run's folder.
const Folder = "tensorboard"

const (
	// limitTextBytes bounds a text; longer texts are cut.
	limitTextBytes = 1 << 16
	// limitTagBytes bounds the name of a metric.
	limitTagBytes = 200
	// limitMetrics bounds the metrics of a step that a model's own layers report.
	limitMetrics = 64
	// limitFiles bounds the event files of a folder.
	limitFiles = 10_000
)
