// Package transport is how the processes of a cluster reach each other, over one TCP port.
//
// Control messages have one type, wire.Envelope, and go over protoactor's remote: Send passes one on
// or loses it, and Handlers.Envelope gets it at the other side, in the order of the sends. Package link
// numbers, acknowledges and repeats them. Everything else is a plain stream with the name of its
// protocol: Dial at one side, a function of Handlers.Streams at the other. The names are lane, beat, join,
// renew, api, log and probe; ALPN carries them.
//
//	t, err := transport.Listen(transport.Config{System: system, Listen: "127.0.0.1:0",
//		Handlers: transport.Handlers{Envelope: receive, Streams: streams}})
//	t.Send("10.0.0.2:7070", envelope)
//	conn, err := t.Dial(ctx, "10.0.0.2:7070", "lane")
//
// A process that only dials, such as one that joins, needs no Listen: it has Dialer.
// NewMemory is a network within a process, for tests, with faults.
//
// # What stands before protoactor
//
// An open port of protoactor's remote lets anybody stop, spawn and forge, and some messages crash the
// process. So each connection passes three checks. conns.go limits how many there are. handshake.go asks
// who it is and what it speaks: TLS 1.3 with a certificate of the coordinator's authority and ALPN (join
// needs a token instead of a certificate); without TLS the first bytes. guard.go checks each message of
// a control connection before protoactor sees it: only envelopes to the one actor troupe-link pass. So
// actors cannot watch actors of other processes, and need not: beats notice a death. For the same
// reason no PID of another process resolves to protoactor's remote.
//
// The package must never know what an envelope means.
package transport
