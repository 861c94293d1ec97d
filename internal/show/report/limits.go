package report

// The limits of this package.
const (
	// limitPoints is how many points a curve of a page has at most.
	limitPoints = 400
	// limitSparkPoints is how many those of a table have.
	limitSparkPoints = 60
	// limitSamples, limitEvents and limitLayers bound what a page shows of texts, of what
	// happened, and of the model's layers.
	limitSamples = 10
	limitEvents  = 200
	limitLayers  = 512
	// limitSampleBytes is how much of a text is shown.
	limitSampleBytes = 4 << 10
	// limitMetrics bounds the metrics of the model's own that get a chart.
	limitMetrics = 24
)
