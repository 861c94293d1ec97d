package transport

import (
	"fmt"
	"strings"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-ml/troupe/internal/wire"
)

// The guard passes only the messages that Send makes protoactor write in another process. protoactor
// itself would panic at some messages, and obey others from any client.

var (
	envelopeType = (&wire.Envelope{}).ProtoReflect().Descriptor()
	envelopeName = string(envelopeType.FullName())
)

// forbidden returns an error of the guard.
func forbidden(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMessage, fmt.Sprintf(format, args...))
}

// scan calls field for each field of an encoded message; content is nil unless the field has
// a length.
func scan(what string, data []byte, field func(n protowire.Number, content []byte) error) error {
	for len(data) > 0 {
		n, kind, used := protowire.ConsumeTag(data)
		if used < 0 {
			return forbidden("%s: not protobuf: %v", what, protowire.ParseError(used))
		}
		data = data[used:]
		var content []byte
		if kind == protowire.BytesType {
			content, used = protowire.ConsumeBytes(data)
			if used >= 0 && content == nil {
				content = data[:0]
			}
		} else {
			used = protowire.ConsumeFieldValue(n, kind, data)
		}
		if used < 0 {
			return forbidden("%s, field %d: not protobuf: %v", what, n, protowire.ParseError(used))
		}
		data = data[used:]
		if err := field(n, content); err != nil {
			return err
		}
	}
	return nil
}

// checkEncoded checks a RemoteMessage before it is decoded, because a decoder may turn two bytes into
// a hundred bytes of memory. It allows only the fields that Send uses, as often as Send uses them.
func checkEncoded(data []byte) error {
	if len(data) > recvBytesMax {
		return forbidden("it has %d bytes; the limit is %d", len(data), recvBytesMax)
	}
	fields := 0
	return scan("message", data, func(n protowire.Number, content []byte) error {
		if fields++; fields > 1 {
			return forbidden("it has several fields; want one")
		}
		switch {
		case n == 1 && content != nil:
			return checkEncodedBatch(content)
		case n == 2 && content != nil:
			return checkEncodedConnect(content)
		}
		return forbidden("field %d; want a batch or a connect request", n)
	})
}

func checkEncodedBatch(data []byte) error {
	var types, targets, envelopes int
	return scan("batch", data, func(n protowire.Number, content []byte) error {
		switch {
		case n == 1 && content != nil:
			if types++; types > 1 {
				return forbidden("it has several type names; want one")
			}
		case n == 2 && content != nil:
			if targets++; targets > 1 {
				return forbidden("it has several targets; want one")
			}
		case n == 3 && content != nil:
			if envelopes++; envelopes > LimitBatch {
				return forbidden("it has more than %d envelopes, the limit", LimitBatch)
			}
			return checkEncodedEnvelope(content)
		case n == 4:
			return forbidden("it has a sender; want none")
		default:
			return forbidden("batch, field %d", n)
		}
		return nil
	})
}

func checkEncodedEnvelope(data []byte) error {
	var seen [6]bool
	return scan("envelope", data, func(n protowire.Number, content []byte) error {
		switch {
		case n == 2 && content != nil, (n == 1 || n == 3 || n == 5) && content == nil:
		case n == 4 || n == 8:
			return forbidden("it has a sender; want none")
		case n == 6:
			return forbidden("it has headers; want none")
		default:
			return forbidden("envelope, field %d", n)
		}
		if seen[n] {
			return forbidden("envelope, field %d twice", n)
		}
		seen[n] = true
		return nil
	})
}

func checkEncodedConnect(data []byte) error {
	servers := 0
	return scan("connect request", data, func(n protowire.Number, content []byte) error {
		if n != 2 || content == nil {
			return forbidden("connect request, field %d; want the field of a server", n)
		}
		if servers++; servers > 1 {
			return forbidden("connect request: it has several servers; want one")
		}
		var seen [3]bool
		return scan("connect request", content, func(n protowire.Number, content []byte) error {
			limit := LimitNameBytes // for the actor system's id
			if n == 2 {
				limit = LimitAddressBytes
			}
			switch {
			case n > 2 || content == nil:
				return forbidden("connect request: server, field %d", n)
			case seen[n]:
				return forbidden("connect request: server, field %d twice", n)
			case len(content) > limit:
				return forbidden("connect request: server, field %d has %d bytes; the limit is %d", n, len(content), limit)
			}
			seen[n] = true
			return nil
		})
	})
}

// checkParts bounds the memory that the decoder needs for an encoded message of type md. parts is the
// rest of LimitEnvelopeParts.
func checkParts(data []byte, md protoreflect.MessageDescriptor, parts *int, depth int) error {
	if *parts--; *parts < 0 {
		return forbidden("it has more than %d parts, the limit", LimitEnvelopeParts)
	}
	if depth > LimitEnvelopeDepth {
		return forbidden("its parts are nested deeper than %d, the limit", LimitEnvelopeDepth)
	}
	fields := md.Fields()
	return scan(string(md.Name()), data, func(n protowire.Number, content []byte) error {
		field := fields.ByNumber(n)
		switch {
		case field == nil:
			return forbidden("%s has no field %d", md.Name(), n)
		case field.Message() == nil:
			return nil
		case content == nil:
			return forbidden("%s, field %d: not a message", md.Name(), n)
		}
		return checkParts(content, field.Message(), parts, depth+1)
	})
}

// guard checks the messages of one stream, in order.
type guard struct {
	peer      Peer
	known     bool // with TLS: an envelope's sender must be the peer
	connected bool // its connect request has arrived
}

// check checks a message that checkEncoded has passed. If it returns nil, protoactor may have the
// message.
func (g *guard) check(m *remote.RemoteMessage) error {
	switch m := m.GetMessageType().(type) {
	case *remote.RemoteMessage_ConnectRequest:
		if m.ConnectRequest.GetServerConnection() == nil {
			return forbidden("the connect request has no server")
		}
		if g.connected {
			return forbidden("a second connect request")
		}
		g.connected = true
		return nil
	case *remote.RemoteMessage_MessageBatch:
		if !g.connected {
			return forbidden("a batch before the connect request")
		}
		return g.checkBatch(m.MessageBatch)
	}
	return forbidden("it is a %T; want a batch or a connect request", m.GetMessageType())
}

func (g *guard) checkBatch(b *remote.MessageBatch) error {
	if n := len(b.GetSenders()); n > 0 {
		return forbidden("it has %d senders; want none", n)
	}
	if n := len(b.GetEnvelopes()); n > LimitBatch {
		return forbidden("it has %d envelopes; the limit is %d", n, LimitBatch)
	}
	// Each list must have exactly one entry, so that an index can't select another.
	if names := b.GetTypeNames(); len(names) != 1 || names[0] != envelopeName {
		return forbidden("its types are %s; want only %s", quoted(names), envelopeName)
	}
	if targets := b.GetTargets(); len(targets) != 1 || targets[0] != LinkActor {
		return forbidden("its targets are %s; want only %s", quoted(targets), LinkActor)
	}
	for _, e := range b.GetEnvelopes() {
		if err := g.checkEnvelope(e); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) checkEnvelope(e *remote.MessageEnvelope) error {
	switch {
	case e.GetTypeId() != 0:
		return forbidden("type index %d of 1", e.GetTypeId())
	case e.GetTarget() != 0:
		return forbidden("target index %d of 1", e.GetTarget())
	case e.GetSender() != 0 || e.GetSenderRequestId() != 0:
		return forbidden("sender index %d of 0", e.GetSender())
	case e.GetTargetRequestId() != 0:
		return forbidden("it has a request number; want none")
	case e.GetSerializerId() != 0:
		return forbidden("its serializer is %d; want 0", e.GetSerializerId())
	case e.GetMessageHeader() != nil:
		return forbidden("it has headers; want none")
	case len(e.GetMessageData()) > LimitEnvelopeBytes:
		return forbidden("the envelope has %d bytes; the limit is %d", len(e.GetMessageData()), LimitEnvelopeBytes)
	}
	parts := LimitEnvelopeParts
	if err := checkParts(e.GetMessageData(), envelopeType, &parts, 0); err != nil {
		return err
	}
	var m wire.Envelope
	if err := proto.Unmarshal(e.GetMessageData(), &m); err != nil {
		return forbidden("decode the envelope: %v", err)
	}
	if g.known && m.GetSender() != g.peer.Name {
		return forbidden("it names %s as its sender, but %q sent it", quoted([]string{m.GetSender()}), g.peer.Name)
	}
	return nil
}

// quoted quotes names from other processes for logs, cut to a bounded length.
func quoted(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s and %d more", quoted(names[:2]), len(names)-2)
	}
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		if len(name) > LimitNameBytes {
			name = name[:LimitNameBytes] + "…"
		}
		fmt.Fprintf(&b, "%q", name)
	}
	if len(names) == 0 {
		return "none"
	}
	return b.String()
}
