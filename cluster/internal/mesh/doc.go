// Package mesh joins the actor systems of a cluster's processes: an actor sends to the PID of an
// actor in another process as it does to one in its own. Neither of them sees what follows:
//
//  1. The PID resolves to the mesh (port.go). The attempt's codec (package actors) packs the message
//     into the schema of internal/wire. First the codec says whether the message
//     may leave for that process (cluster.edge), whichever process it comes from.
//  2. A control message goes over the link. A message that owns tensors goes over the lane: a header, and the
//     numbers as they lie in memory. The message is released when the receiver has acknowledged it.
//  3. At the other end the codec unpacks the message, with the tensors already in the receiver's memory.
//
// Each mesh keeps an account of the messages that it has sent to each process (sent.go). Unreachable
// names the processes to which something has waited too long without an acknowledgement: beats carry
// this to the coordinator.
//
// A worker that was declared dead joins again as a new incarnation with a mesh of its own. Its actor
// system, transport and address last as long as the process: a Port leads them to the present mesh, and
// messages for another incarnation are dropped.
//
// The package knows that there are attempts, codecs, links and lanes. It doesn't know who
// is a member, what a run is, or how an attempt is placed.
package mesh
