package prom

import "time"

// The bounds of what is kept and served.
const (
	// limitRuns bounds the active runs of a Collector.
	limitRuns = 1024
	// limitEnded is the number of ended runs that a Collector still shows.
	limitEnded = 16
	// limitRanks bounds the ranks of a run with their own series.
	limitRanks = 4096
	// limitMetrics bounds the metrics that a model's own layers report.
	limitMetrics = 64
	// limitLabelBytes bounds the value of a label.
	limitLabelBytes = 200
	// limitScrapes bounds the concurrent scrapes.
	limitScrapes = 4
	// limitConnections bounds the concurrent connections of Serve.
	limitConnections = 64
	// limitHeaderBytes bounds the header of a request.
	limitHeaderBytes = 16 << 10

	headerTime = 5 * time.Second  // limit for reading a request's header
	scrapeTime = 30 * time.Second // limit for a request and its response
	idleTime   = 2 * time.Minute  // limit for an idle connection
	closeTime  = time.Second      // time that Close waits for scrapes
)
