// Package beat tells whether processes of a cluster are alive: it is the cluster's only
// failure detector. Each worker keeps a stream of its own to the coordinator for it, on
// which both send a beat every now and then and answer the other's, so that neither bulk
// tensors nor long computations can look like a death.
//
// A worker is gone when it says goodbye; when nothing has been heard of it for Silence;
// or when its stream broke and its address refuses connections, by which a host says that
// the process is dead: that takes a fraction of a second. A broken stream alone is no
// death: the worker dials again. Whoever was declared gone stays gone; what wakes up later
// under the same incarnation is refused, and has to join as a new one.
//
// Beats carry what the worker's actors are doing, and their times give the offset between
// the two clocks (the beat with the shortest round trip counts, as in NTP).
//
// The package knows streams and the schema, but no runs.
package beat
