// Package transport is how the processes of a cluster reach each other, over one TCP port.
//
// Control messages are of one type, wire.Envelope, and go over protoactor's remote: Send
// passes one on or loses it, and Handlers.Envelope gets it at the other side, in the order of
// the sends. Numbers, acknowledgements and sending again are package link's. Everything else
// is a plain stream by the name of its protocol: Dial at one side, a function of
// Handlers.Streams at the other.
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
// An open port of protoactor's remote lets anybody stop, spawn and forge, and some messages
// crash the process. So every connection is admitted (conns.go: how many), then shows who it is
// and what it speaks (handshake.go: a TLS certificate and ALPN; without TLS the first bytes),
// and every message of a control connection is checked before protoactor sees it (guard.go):
// envelopes to the one actor troupe-link, nothing else. Watching actors of other processes
// therefore doesn't work, and is not meant to: death is noticed by heartbeats. For the same
// reason no PID of another process resolves to protoactor's remote.
//
// The package may import protoactor, gRPC and the wire's schema. It must never know what an
// envelope means.
package transport
