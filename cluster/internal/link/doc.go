// Package link delivers control messages between processes: each once, and in the order
// in which they were posted, over a way that loses them, as protoactor's remote does where
// a connection breaks.
//
// Messages to a peer are numbered. The peer acknowledges them, with its own messages or
// alone, and drops what it has had; what is not acknowledged in time is sent again, from
// the first on ("go back N"). A peer is an incarnation of a process: one that starts again
// is another peer, and gets nothing of what was for the one before it. The numbers are of a session,
// which begins when a process becomes known: two processes that forget each other and meet again
// begin at 1, and what was on its way from before is dropped. An envelope names both sessions. The
// first one to a peer can't name the peer's: it is answered with that, and sent again.
//
// The package knows the schema's envelope (internal/wire) and nothing of what is in it,
// and no sockets: Config.Send is the way out, Node.Receive the way in.
package link
