package report

// The limits of this package.
const (
	// limitPoints bounds the points of a curve.
	limitPoints = 400
	// limitSparkPoints bounds the points of a curve in a table.
	limitSparkPoints = 60
	// limitSamples, limitEvents and limitLayers bound the samples, events and layers of a page.
	limitSamples = 10
	limitEvents  = 200
	limitLayers  = 512
	// limitSampleBytes bounds the text of a sample.
	limitSampleBytes = 4 << 10
	// limitMetrics bounds the charts of metrics that the model's own layers report.
	limitMetrics = 24
)
