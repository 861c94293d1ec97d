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
// # What holds
//
//   - Messages are numbered by sender and receiver. A sender keeps a message until it is acknowledged, and
//     sends what is missing again when a stream comes back; the receiver drops what it has. take is called once
//     for a message, and so is every done function.
//   - A message of more than [LimitPiece] bytes is cut into pieces that all streams to the peer carry.
//     Messages may therefore arrive in another order than they were sent in.
//   - Nothing is copied on the way out: parts go to the kernel as they are. On the way in, payload is read
//     straight into the memory that take returned.
//   - Between processes of one host payload goes through shared memory, where both ends can (see shm.go). A group that can
//     use a payload where it lies there may keep it, instead of having it copied (see loan.go). Its pages become huge where much goes
//     through them (hugepage_linux.go).
//   - On Linux a reader of a socket watches it for 100 µs before it goes to sleep, and lets all else go first meanwhile: what
//     follows soon is not held up by waking a core (awake_linux.go). Over TLS it goes to sleep at once.
//   - The memory of a message isn't touched after its done function was called, nor after [Group.Close].
//
// The package may import the standard library and golang.org/x/sys. It must never know tensors, layers, actors,
// schedules or how streams are made secure.
package lane
