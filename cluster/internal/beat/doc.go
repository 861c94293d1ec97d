// Package beat tells whether processes of a cluster are alive. It is the cluster's only failure
// detector. Each worker keeps a stream of its own to the coordinator for it. On this stream both send a
// beat at intervals and answer the other's, so neither bulk tensors nor long computations look like a
// death.
//
// A worker is dead when
//
//   - it says goodbye;
//   - nothing has been heard of it for Silence (cluster.silence_s);
//   - its stream broke and its address refuses connections: then its host says that the process is
//     dead, which takes a fraction of a second.
//
// A broken stream alone is no death: the worker dials again. A worker that was declared dead stays
// dead. If it wakes up later under the same incarnation it is refused, and has to join as a new one.
//
// Beats carry what the worker's actors do, what they have recorded, and which processes the worker
// does not reach. Their times give the offset between the two clocks: the beat with the shortest round
// trip counts, as in NTP.
//
// The package knows streams and the schema, but no runs.
package beat
