// Package link delivers control messages between processes, each once and in the order in which
// they were posted. The transport below may lose messages: protoactor's remote does when a connection
// breaks.
//
// Messages to a peer are numbered. The peer acknowledges them, in its own messages or separately, and
// drops duplicates. If a message is not acknowledged in time, it and all later ones are resent ("go
// back N"). A peer is one incarnation of a process: a restarted process is another peer, and gets no
// message for the earlier one.
//
// The numbers belong to a session, which begins when a process becomes known. If two processes forget
// each other and meet again, the numbers begin at 1, and late messages of the earlier session are
// dropped. An envelope names both sessions. The first envelope to a peer can't name the peer's
// session: the peer answers with it, and the envelope is resent.
//
// The package knows the schema's envelope (internal/wire), but neither its content nor sockets. It
// sends through Config.Send and receives through Node.Receive.
package link
