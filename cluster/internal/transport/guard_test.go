package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

const envelopeName = "troupe.wire.Envelope"

func encode(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

// goodBatch is the batch that protoactor writes for Send; change makes it invalid.
func goodBatch(change func(b *remote.MessageBatch)) *remote.RemoteMessage {
	b := &remote.MessageBatch{
		TypeNames: []string{envelopeName},
		Targets:   []string{transport.LinkActor},
		Envelopes: []*remote.MessageEnvelope{
			{MessageData: encode(&wire.Envelope{Sender: "a", Seq: 1,
				Body: &wire.Envelope_Message{Message: &wire.Message{Header: &wire.Header{Step: 3}}}})},
			{MessageData: encode(&wire.Envelope{Sender: "a", Ack: 1})},
		},
	}
	if change != nil {
		change(b)
	}
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}}
}

func connectRequest(change func(c *remote.ServerConnection)) *remote.RemoteMessage {
	c := &remote.ServerConnection{MemberId: "someone", Address: "127.0.0.1:7070"}
	if change != nil {
		change(c)
	}
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
		ConnectionType: &remote.ConnectRequest_ServerConnection{ServerConnection: c}}}}
}

// message makes a batch of one message of protoactor's own to target.
func message(target string, m proto.Message) *remote.RemoteMessage {
	return goodBatch(func(b *remote.MessageBatch) {
		b.TypeNames = []string{string(proto.MessageName(m))}
		b.Targets = []string{target}
		b.Envelopes = []*remote.MessageEnvelope{{MessageData: encode(m)}}
	})
}

// manyParts is an envelope of n messages in two bytes each.
func manyParts(n int) []byte {
	inner := bytes.Repeat([]byte{2<<3 | 2, 0}, n) // StageDone.losses
	for _, field := range []protowire.Number{9, 7} {
		inner = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), inner)
	}
	return inner
}

type forbiddenMessage struct {
	name string
	data []byte
	why  string
}

// forbiddenMessages are refused by every guard.
func forbiddenMessages() []forbiddenMessage {
	m := func(name, why string, m *remote.RemoteMessage) forbiddenMessage {
		return forbiddenMessage{name, encode(m), why}
	}
	batch := func(name, why string, change func(b *remote.MessageBatch)) forbiddenMessage {
		return m(name, why, goodBatch(change))
	}
	envelope := func(name, why string, change func(e *remote.MessageEnvelope)) forbiddenMessage {
		return batch(name, why, func(b *remote.MessageBatch) { change(b.Envelopes[1]) })
	}
	huge := wire.Envelope{Target: strings.Repeat("x", transport.LimitEnvelopeBytes)}
	return []forbiddenMessage{
		{"nothing", nil, "want a batch"},
		{"garbage", []byte("garbage"), "not protobuf"},
		{"cut off", encode(goodBatch(nil))[:20], "not protobuf"},
		{"twice", append(encode(goodBatch(nil)), encode(goodBatch(nil))...), "several fields"},
		{"a batch that is no message", []byte{1 << 3, 0}, "field 1"},
		m("a connect response", "field 3",
			&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectResponse{ConnectResponse: &remote.ConnectResponse{}}}),
		m("a disconnect request", "field 4",
			&remote.RemoteMessage{MessageType: &remote.RemoteMessage_DisconnectRequest{DisconnectRequest: &remote.DisconnectRequest{}}}),
		m("a client's connect request", "field 1",
			&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
				ConnectionType: &remote.ConnectRequest_ClientConnection{ClientConnection: &remote.ClientConnection{MemberId: "x"}}}}}),
		m("a connect request of nobody", "has no server",
			&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{}}}),
		m("a block list", "field 3", connectRequest(func(c *remote.ServerConnection) { c.BlockList = []string{"x"} })),
		m("a long id", "65 bytes", connectRequest(func(c *remote.ServerConnection) { c.MemberId = strings.Repeat("x", 65) })),
		m("a long address", "261 bytes", connectRequest(func(c *remote.ServerConnection) { c.Address = strings.Repeat("x", 261) })),

		batch("two types", "several type names", func(b *remote.MessageBatch) { b.TypeNames = append(b.TypeNames, envelopeName) }),
		batch("two targets", "several targets", func(b *remote.MessageBatch) { b.Targets = append(b.Targets, transport.LinkActor) }),
		batch("no type", "types are none", func(b *remote.MessageBatch) { b.TypeNames = nil }),
		batch("no target", "targets are none", func(b *remote.MessageBatch) { b.Targets = nil }),
		batch("an unknown type", "Nobody", func(b *remote.MessageBatch) { b.TypeNames[0] = "troupe.wire.Nobody" }),
		batch("another type of ours", "troupe.wire.Halt", func(b *remote.MessageBatch) { b.TypeNames[0] = "troupe.wire.Halt" }),
		batch("another target", "loader", func(b *remote.MessageBatch) { b.Targets[0] = "loader" }),
		batch("a long target", "…", func(b *remote.MessageBatch) { b.Targets[0] = strings.Repeat("x", 1<<20) }),
		batch("a sender", "want none", func(b *remote.MessageBatch) { b.Senders = []*actor.PID{actor.NewPID("127.0.0.1:1", "x")} }),
		batch("many envelopes", "more than 16", func(b *remote.MessageBatch) {
			for range transport.LimitBatch {
				b.Envelopes = append(b.Envelopes, b.Envelopes[0])
			}
		}),
		batch("a million empty envelopes", "more than 16", func(b *remote.MessageBatch) {
			b.Envelopes = make([]*remote.MessageEnvelope, 1<<20)
			for i := range b.Envelopes {
				b.Envelopes[i] = &remote.MessageEnvelope{}
			}
		}),

		envelope("type index", "type index 1", func(e *remote.MessageEnvelope) { e.TypeId = 1 }),
		envelope("negative type index", "type index -1", func(e *remote.MessageEnvelope) { e.TypeId = -1 }),
		envelope("target index", "target index 7", func(e *remote.MessageEnvelope) { e.Target = 7 }),
		envelope("negative target index", "target index -7", func(e *remote.MessageEnvelope) { e.Target = -7 }),
		envelope("sender index", "a sender", func(e *remote.MessageEnvelope) { e.Sender = 1 }),
		envelope("negative sender index", "a sender", func(e *remote.MessageEnvelope) { e.Sender = -1 }),
		envelope("sender's request", "a sender", func(e *remote.MessageEnvelope) { e.SenderRequestId = 1 }),
		envelope("target's request", "field 7", func(e *remote.MessageEnvelope) { e.TargetRequestId = 1 }),
		envelope("JSON", "serializer is 1", func(e *remote.MessageEnvelope) { e.SerializerId = 1 }),
		envelope("unknown serializer", "serializer is -1", func(e *remote.MessageEnvelope) { e.SerializerId = -1 }),
		envelope("headers", "headers", func(e *remote.MessageEnvelope) {
			e.MessageHeader = &remote.MessageHeader{HeaderData: map[string]string{"name": "coordinator"}}
		}),
		envelope("empty headers", "headers", func(e *remote.MessageEnvelope) { e.MessageHeader = &remote.MessageHeader{} }),
		envelope("too large", "the limit is", func(e *remote.MessageEnvelope) { e.MessageData = encode(&huge) }),
		envelope("not protobuf", "not protobuf", func(e *remote.MessageEnvelope) { e.MessageData = []byte{0xff} }),
		envelope("not UTF-8", "decode the envelope", func(e *remote.MessageEnvelope) { e.MessageData = []byte{3<<3 | 2, 1, 0xff} }),
		envelope("unknown field", "no field 99", func(e *remote.MessageEnvelope) {
			e.MessageData = protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
		}),
		envelope("a number for a message", "not a message", func(e *remote.MessageEnvelope) { e.MessageData = []byte{7 << 3, 1} }),
		envelope("many parts", "parts", func(e *remote.MessageEnvelope) { e.MessageData = manyParts(transport.LimitEnvelopeParts) }),
		// What protoactor would obey.
		m("Stop", "actor.Stop", message("loader", &actor.Stop{})),
		m("PoisonPill", "actor.PoisonPill", message("loader", &actor.PoisonPill{})),
		m("Stop to the link", "actor.Stop", message(transport.LinkActor, &actor.Stop{})),
		m("Terminated of nobody", "actor.Terminated", message(transport.LinkActor, &actor.Terminated{})),
		m("Watch", "actor.Watch", message(transport.LinkActor, &actor.Watch{Watcher: actor.NewPID("127.0.0.1:1", "x")})),
		m("spawn", "ActorPidRequest", message("activator", &remote.ActorPidRequest{Kind: "x"})),
		m("publish", "DeadLetterResponse", message("eventstream", &actor.DeadLetterResponse{})),
		m("stop of the supervisor", "actor.Stop", message("EndpointSupervisor", &actor.Stop{})),
	}
}

// pass gives a message's bytes to a guarded stream.
func pass(g *transport.Guard, data []byte) error {
	if err := transport.CheckEncoded(data); err != nil {
		return err
	}
	var m remote.RemoteMessage
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	return g.Check(&m)
}

func TestGuard(t *testing.T) {
	for _, c := range forbiddenMessages() {
		t.Run(c.name, func(t *testing.T) {
			for _, g := range []*transport.Guard{transport.NewGuard(transport.Peer{}, false), transport.NewGuard(transport.Peer{Name: "a"}, true)} {
				err := pass(g, c.data)
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("got %v; want %s", err, c.why)
				}
				if err != nil && len(err.Error()) > 500 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			}
		})
	}
	good, connect := encode(goodBatch(nil)), encode(connectRequest(nil))
	a, b := transport.Peer{Name: "a", Role: "worker"}, transport.Peer{Name: "b", Role: "worker"}
	for _, c := range []struct {
		name  string
		guard *transport.Guard
		data  []byte
		why   string
	}{
		{"good", transport.NewGuard(a, true), good, ""},
		{"good without TLS", transport.NewGuard(transport.Peer{}, false), good, ""},
		{"forged sender", transport.NewGuard(b, true), good, `it names "a" as its sender, but "b" sent it`},
		{"connect", transport.NewUnconnectedGuard(), connect, ""},
		{"connect twice", transport.NewGuard(a, true), connect, "second connect request"},
		{"batch before connect", transport.NewUnconnectedGuard(), good, "before the connect request"},
		{"empty batch", transport.NewGuard(a, true), encode(goodBatch(func(b *remote.MessageBatch) { b.Envelopes = nil })), ""},
	} {
		err := pass(c.guard, c.data)
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: got %v; want %s", c.name, err, c.why)
		}
	}
	largest := goodBatch(func(b *remote.MessageBatch) {
		e := &wire.Envelope{Sender: "a"}
		e.Target = strings.Repeat("x", transport.LimitEnvelopeBytes-8)
		b.Envelopes = []*remote.MessageEnvelope{{MessageData: encode(e)}}
	})
	if err := pass(transport.NewGuard(a, true), encode(largest)); err != nil {
		t.Errorf("the largest envelope: %v", err)
	}
}

// TestGuardMemory: a refused message was not decoded.
func TestGuardMemory(t *testing.T) {
	for _, c := range forbiddenMessages() {
		if c.name != "a million empty envelopes" {
			continue
		}
		bytes := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = transport.CheckEncoded(c.data)
			}
		}).AllocedBytesPerOp()
		if bytes > 4096 {
			t.Errorf("%d bytes allocated to refuse %d", bytes, len(c.data))
		}
	}
}

// FuzzGuard: what the guard accepts doesn't make protoactor fail.
func FuzzGuard(f *testing.F) {
	for _, c := range forbiddenMessages() {
		if len(c.data) < 1<<10 {
			f.Add(c.data)
		}
	}
	f.Add(encode(goodBatch(nil)))
	f.Add(encode(connectRequest(nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := pass(transport.NewGuard(transport.Peer{Name: "a"}, true), data)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var m remote.RemoteMessage
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatalf("it passes, and can't be decoded: %v", err)
		}
		if err := harmless(&m); err != nil {
			t.Fatalf("it passes: %v", err)
		}
	})
}

// harmless follows protoactor's reader over a batch.
func harmless(m *remote.RemoteMessage) error {
	b := m.GetMessageBatch()
	if b == nil {
		return errors.New("not a batch")
	}
	for _, e := range b.GetEnvelopes() {
		if e.GetSender() != 0 || b.GetTargets()[e.GetTarget()] != transport.LinkActor {
			return errors.New("a sender or another target")
		}
		got, err := remote.Deserialize(e.GetMessageData(), b.GetTypeNames()[e.GetTypeId()], e.GetSerializerId())
		if err != nil {
			return err
		}
		if env, ok := got.(*wire.Envelope); !ok || env.GetSender() != "a" {
			return fmt.Errorf("a %T", got)
		}
	}
	return nil
}

// FuzzPreamble: the name is short, and the bytes after it are left to the protocol.
func FuzzPreamble(f *testing.F) {
	f.Add([]byte(transport.Magic + "\x04echorest"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(transport.Magic + "\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		protocol, control, err := transport.ReadPreamble(r)
		used := len(data) - r.Len()
		switch {
		case err != nil:
		case control && used != len(transport.Magic):
			t.Errorf("%d bytes of HTTP/2 read", used)
		case !control && (len(protocol) == 0 || len(protocol) > transport.LimitNameBytes || used != len(transport.Magic)+1+len(protocol)):
			t.Errorf("protocol %q, %d bytes read", protocol, used)
		}
	})
}

func TestCheckAddress(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:7070": true, "[::1]:7070": true, "host.example:1": true, "dns:7070": true, "unix:7070": true,
		"": false, ":7070": false, "host": false, "host:0": false, "host:70000": false, "host:http": false, "unix:///x": false,
		"unix:/run/docker.sock": false, "dns:///host:7070": false, strings.Repeat("x", 300) + ":1": false,
	} {
		if err := transport.CheckAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
