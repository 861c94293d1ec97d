// Package lane moves large payloads between the processes of a cluster, each exactly once.
//
// A message is a small header, opaque here, and a list of parts: byte slices of any length. It goes
// over streams (net.Conn) that a transport dials and accepts; the transport has decided already who
// may connect. Every ordered pair of processes has streams of its own: the sender dials them, data
// goes one way and acknowledgements come back on the same stream.
//
// # Use
//
//	node := lane.New(lane.Config{Self: id, Dial: dial, Streams: 2, Checksum: true})
//	go node.Accept(conn, admit)       // for every stream that the transport accepted
//	node.SetPeer(other, address)      // where messages for other go
//	group := node.Open(attempt, take) // take says where the parts of a message are read into
//	group.Send(other, header, parts, done)
//	group.Close()                     // from now on the memory of all its messages is the caller's again
//	node.Close()
//
// # Guarantees
//
//   - Messages are numbered by sender and receiver. A sender keeps a message until it is acknowledged, and
//     sends missing ones again when a stream comes back; the receiver drops duplicates. take and each
//     done function are called once for a message.
//   - A message of more than [LimitPiece] bytes is cut into pieces that all streams to the peer carry.
//     So messages may arrive in another order than they were sent in.
//   - The memory of a message isn't touched after its done function was called, nor after [Group.Close].
//   - With [Group.SendLeaving] the caller learns earlier that its memory is free: as soon as the lane has
//     its own copy in a slot of shared memory. If the connection breaks, the lane sends from that copy.
//
// # Copies
//
// Nothing is copied on the way out: parts go to the kernel as they are. On the way in, payload is read
// straight into the memory that take returned. A payload that lies where the lane can't read or write,
// such as on a GPU, passes in pieces through page-locked memory on loan, the next piece while one is on
// the wire (pieces.go). The lane knows no devices: the owner of the payload lends the memory.
//
// Between processes of one host, payload goes through shared memory where both ends can use it
// (shm.go). The receiver may keep a payload there and use it in place (loan.go): a collective sums
// contributions that way. Pages that much payload goes through become huge (hugepage_linux.go).
//
// # Latency
//
// On Linux the reader of a socket stays awake for 100 µs after each message before it sleeps, because
// waking a core takes longer than most waits in a collective (awake_linux.go). In that time all other
// work goes first. Over TLS the reader sleeps at once.
//
// Package bench below measures the lane beside TCP, TLS, gRPC and protoactor.
//
// The package must never know tensors, layers, actors, schedules or how streams are made secure.
package lane
