// Package beat detects which workers of a cluster are alive. It is the cluster's only failure
// detector. Each worker keeps a separate stream to the coordinator, on which both ends send beats at
// intervals and answer the other's beats. So neither large tensors nor long computations look like a
// failure.
//
// The coordinator removes a worker when
//
//   - the worker says goodbye;
//   - it has sent nothing for Silence (cluster.silence_s, or --silence-s of engine cluster start);
//   - its stream broke and its address refuses connections. Then the host itself says that the
//     process has exited, which takes a fraction of a second.
//
// A broken stream alone is not a failure: the worker redials. A silence counts only the time in which
// the process that measures it was awake (clock.Awake), so after a freeze of the coordinator its workers
// are still members. A removed worker stays removed. If it returns with the same incarnation, the
// coordinator refuses it, and it has to join as a new one.
//
// Beats carry what the worker's actors are doing, the actions that they have recorded, and the
// processes that the worker can't reach. The times in beats give the offset between the two clocks;
// the beat with the shortest round trip counts, as in NTP.
//
// The package knows streams and the schema, but no runs.
package beat
