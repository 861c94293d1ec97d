package ui

import "time"

// The bounds of what the server takes and keeps.
const (
	limitStreams     = 64       // readers of events at a time
	limitRequests    = 128      // other requests at a time
	limitConnections = 512      // of a Listener
	limitHeaderBytes = 32 << 10 // of a request, by Serve
	limitBodyBytes   = 4 << 10  // of a request for control
	limitURLBytes    = 4 << 10
	limitTokenBytes  = 1 << 10

	limitRuns      = 4096    // of all folders
	limitCompared  = 16      // runs whose configurations are compared, or whose curves are asked for at a time
	limitBuckets   = 4096    // points of a curve in an answer
	limitMarks     = 4096    // of a run that are kept; the oldest are forgotten
	limitStats     = 512     // lines of stats.jsonl that are kept, thinned out evenly
	limitSamples   = 256     // of a run that are kept, the newest
	limitRecords   = 1 << 16 // steps of a run without a folder that are kept, thinned out evenly
	limitTraces    = 1 << 16 // steps of a trace.jsonl that are known; later ones are not
	limitLiveBatch = 20_000  // actions of the step under way in one message
	limitPictures  = 4       // steps of a run that are kept ready to be sent

	headerTimeout = 10 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// A reader who takes nothing for so long is cut off.
	slowReader = 10 * time.Second
	// What an answer may take in all.
	answerTimeout = time.Minute
	// endPatience is how long Serve waits for answers under way when it ends.
	endPatience = 2 * time.Second

	messageEvery  = 100 * time.Millisecond // at most, to a reader
	statusEvery   = 200 * time.Millisecond // at most, of all readers of a run together
	filesEvery    = time.Second            // how often files are looked at, while somebody reads
	heartbeat     = 10 * time.Second       // of a stream where nothing happens
	recordFor     = 4 * time.Second        // from the last moment at which somebody looked
	recordAgain   = time.Second
	listEvery     = 2 * time.Second // how often folders of runs are listed again
	quietAfter    = 2 * time.Minute // a run of files that wrote nothing for so long is taken for ended
	analysisShare = 8               // of the time after a step was analysed, before the next is
)
