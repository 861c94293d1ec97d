package ui

import "time"

// The limits of the server.
const (
	limitStreams     = 64       // concurrent readers of events
	limitRequests    = 128      // other concurrent requests
	limitConnections = 512      // of a Listener
	limitHeaderBytes = 32 << 10 // of a request, by Serve
	limitBodyBytes   = 4 << 10  // of a request for control
	limitURLBytes    = 4 << 10

	limitRuns      = 4096    // of all folders
	limitCompared  = 16      // runs of a comparison, and curves of a request
	limitBuckets   = 4096    // points of a curve
	limitMarks     = 4096    // marks of a run; the oldest are dropped
	limitStats     = 512     // lines of stats.jsonl, thinned out evenly
	limitSamples   = 256     // newest samples of a run
	limitRecords   = 1 << 16 // steps of a run without a folder, thinned out evenly
	limitTraces    = 1 << 16 // steps of a trace.jsonl; later ones are ignored
	limitLiveBatch = 20_000  // actions of the current step in one message
	limitPictures  = 4       // drawings of a run that are kept

	headerTimeout = 10 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// slowReader is the time after which the server disconnects a reader that reads nothing.
	slowReader = 10 * time.Second
	// answerTimeout is the limit for sending a response.
	answerTimeout = time.Minute
	// endPatience is the time that Serve waits for active requests when it ends.
	endPatience = 2 * time.Second

	messageEvery  = 100 * time.Millisecond // shortest interval of messages to a reader
	statusEvery   = 200 * time.Millisecond // shortest interval of status queries of a run
	filesEvery    = time.Second            // shortest interval of reading a run's files
	heartbeat     = 10 * time.Second       // interval of heartbeats of an idle stream
	recordFor     = 4 * time.Second        // time that a run records after a page showed its pipeline
	recordAgain   = time.Second
	listEvery     = 2 * time.Second // shortest interval of listing a folder of runs
	quietAfter    = 2 * time.Minute // time without writes after which a run of files counts as ended
	analysisShare = 8               // pause between drawings, as a multiple of the time that the last one took
)
