// Package transport connects the processes of a cluster, over one TCP port for each.
//
// Control messages have one type, wire.Envelope, and go over protoactor's remote. Send sends or loses
// one, and Handlers.Envelope gets it at the other side, in the order of the sends. Package link numbers,
// acknowledges and resends them. Everything else uses plain streams with the name of a protocol: Dial
// opens one, and a function of Handlers.Streams serves it at the other side. The names are lane, beat,
// join, renew, api, log and probe; ALPN carries them.
//
//	t, err := transport.Listen(transport.Config{System: system, Listen: "127.0.0.1:0",
//		Handlers: transport.Handlers{Envelope: receive, Streams: streams}})
//	t.Send("10.0.0.2:7070", envelope)
//	conn, err := t.Dial(ctx, "10.0.0.2:7070", "lane")
//
// A process that only dials, such as one that joins, uses Dialer instead of Listen. NewMemory is a
// network within a process, for tests, with faults.
//
// # Checks before protoactor
//
// Any client that can connect to protoactor's remote can stop and spawn actors and forge messages, and
// some messages crash the process. So each connection passes three checks. conns.go limits the number
// of connections. handshake.go checks identity and protocol: TLS 1.3 with a certificate of the
// coordinator's authority, and ALPN (join needs a token instead of a certificate); without TLS, the
// first bytes. guard.go checks each message on a control connection before protoactor sees it: only
// envelopes to the one actor troupe-link pass. So actors cannot watch actors in other processes, and
// need not, because beats detect failures. For the same reason no PID of another process resolves to
// protoactor's remote.
//
// The package must never know the meaning of an envelope.
package transport
