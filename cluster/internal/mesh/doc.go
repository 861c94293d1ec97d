// Package mesh connects the actor systems of a cluster's processes: an actor sends to the PID of an
// actor in another process as it does to one in its own. The mesh does the rest:
//
//  1. The PID resolves to the mesh (port.go). The attempt's codec (package actors) checks whether the
//     message may leave for that process (cluster.edge), and packs it into the schema of internal/wire.
//  2. A control message goes over the link. A message with tensors goes over the lane, as a header and the
//     tensors' memory. It is released when the receiver has acknowledged it.
//  3. At the other end the codec unpacks the message, with the tensors already in the receiver's memory.
//
// In a run with cluster.edge each mesh counts the messages that it has sent to each process (sent.go).
// Unreachable names the processes to which messages have waited too long without an acknowledgment;
// beats carry this to the coordinator.
//
// A removed worker joins again as a new incarnation with a new mesh. Its actor system, transport and
// address last as long as the process. A Port connects them to the current mesh; messages for another
// incarnation are dropped.
//
// The package knows attempts, codecs, links and lanes. It doesn't know the list of members, runs, or
// the placement of an attempt.
package mesh
