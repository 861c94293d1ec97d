package otlp

import "time"

// The limits of the queue and of waiting.
const (
	// limitSpans bounds the spans that wait to be sent, about 30 MB. Further spans are dropped.
	limitSpans = 1 << 15
	// limitBatch is the number of spans in a batch.
	limitBatch = 1 << 9

	batchTime   = 2 * time.Second  // longest time that a span waits for its batch
	metricsTime = 15 * time.Second // interval between exports of metrics
	sendTime    = 10 * time.Second // limit for sending a batch
	retryTime   = 20 * time.Second // limit for retries of a batch
	closeTime   = 5 * time.Second  // time that Close waits for unsent data
)
