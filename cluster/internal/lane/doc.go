// Package lane moves large payloads between the processes of a cluster, each exactly once.
//
// A message has a small header, which the lane does not interpret, and a list of parts: byte slices of
// any length. It travels over streams (net.Conn) that a transport dials and accepts; the transport has
// already checked who connects. Each ordered pair of processes has its own streams. The sender dials
// them; data flows in one direction, and acknowledgments return on the same stream.
//
// # Use
//
//	node := lane.New(lane.Config{Self: id, Dial: dial, Streams: 2, Checksum: true})
//	go node.Accept(conn, admit)       // for every stream that the transport accepted
//	node.SetPeer(other, address)      // the address for messages to other
//	group := node.Open(attempt, take) // take returns the memory for the parts of a message
//	group.Send(other, header, parts, done)
//	group.Close()                     // from now on the lane uses no memory of the group's messages
//	node.Close()
//
// # Guarantees
//
//   - Each pair of sender and receiver numbers its messages. The sender keeps a message until it is
//     acknowledged, and resends missing ones when a stream reconnects; the receiver drops duplicates.
//     take and each done function are called once for a message.
//   - A message of more than [LimitPiece] bytes is cut into pieces that use all streams to the peer. So
//     messages may arrive in a different order than they were sent.
//   - The lane does not touch the memory of a message after calling its done function, nor after
//     [Group.Close].
//   - With [Group.SendLeaving] the caller may reuse its memory earlier: as soon as the lane has its own
//     copy in a slot of shared memory. If the connection breaks, the lane resends from that copy.
//
// # Copies
//
// The sender copies nothing: parts go to the kernel as they are. The receiver reads payload directly
// into the memory that take returned. A payload that the lane can't read or write directly, such as on
// a GPU, passes in pieces through borrowed page-locked memory; the next piece is copied while one is
// on the wire (pieces.go). The lane knows no devices: the payload's owner lends the memory.
//
// Between processes on one host, payload goes through shared memory if both ends can use it
// (shm.go). The receiver may keep a payload there and use it in place (loan.go); a collective sums
// contributions this way. Pages with much traffic become huge pages (hugepage_linux.go).
//
// # Latency
//
// On Linux the reader of a socket polls for 100 µs after each message before it sleeps, because waking
// a core takes longer than most waits in a collective (awake_linux.go). While it polls, all other work
// goes first. Over TLS the reader sleeps at once.
//
// Package bench below this one compares the lane with TCP, TLS, gRPC and protoactor.
//
// The package must never know tensors, layers, actors, schedules or how streams are secured.
package lane
