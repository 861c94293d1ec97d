package otlp

import "time"

// The bounds of what waits, and for how long.
const (
	// limitSpans is how many spans may wait to be sent: some 30 MB. More are dropped.
	limitSpans = 1 << 15
	// limitBatch is how many spans are sent at a time.
	limitBatch = 1 << 9

	batchTime   = 2 * time.Second  // for which a span waits for others
	metricsTime = 15 * time.Second // between two sendings of metrics
	sendTime    = 10 * time.Second // that sending a batch may take
	retryTime   = 20 * time.Second // for which a batch is sent again
	closeTime   = 5 * time.Second  // that Close waits for what is under way
)
