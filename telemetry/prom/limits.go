package prom

import "time"

// The bounds of what is kept and served.
const (
	// limitRuns is how many runs a Collector may have that go on.
	limitRuns = 1024
	// limitEnded is how many runs that have ended are still shown.
	limitEnded = 16
	// limitRanks is how many ranks of a run are shown one by one.
	limitRanks = 4096
	// limitMetrics is how many figures of a model's own are shown.
	limitMetrics = 64
	// limitLabelBytes is the longest value of a label.
	limitLabelBytes = 200
	// limitScrapes is how many scrapes are answered at a time.
	limitScrapes = 4
	// limitConnections is how many connections Serve holds at a time.
	limitConnections = 64
	// limitHeaderBytes is the longest header of a request.
	limitHeaderBytes = 16 << 10

	headerTime = 5 * time.Second  // that a request's header may take
	scrapeTime = 30 * time.Second // that a request may take with its answer
	idleTime   = 2 * time.Minute  // that a connection may have nothing to do
	closeTime  = time.Second      // that Close waits for scrapes
)
