// Package link delivers control messages between processes, each once and in the order in which
// they were posted, over a carrier that loses some: protoactor's remote does when a connection breaks.
//
// Messages to a peer are numbered. The peer acknowledges them, with its own messages or alone, and
// drops duplicates. Messages that are not acknowledged in time are sent again, from the first of them
// on ("go back N"). A peer is an incarnation of a process: a process that starts again is another peer,
// and gets no message that was for the one before it.
//
// The numbers belong to a session, which begins when a process becomes known. Two processes that
// forget each other and meet again begin at 1, and messages still on their way from before are dropped.
// An envelope names both sessions. The first envelope to a peer can't name the peer's session: the
// peer answers with it, and the envelope is sent again.
//
// The package knows the schema's envelope (internal/wire) and nothing of what is in it,
// and no sockets: Config.Send is the way out, Node.Receive the way in.
package link
