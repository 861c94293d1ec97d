package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Send passes m on, or loses it.
func (t *TCP) Send(address string, m *wire.Envelope) {
	if t.ctx.Err() != nil {
		return
	}
	if err := checkAddress(address); err != nil {
		t.lose(address, err)
		return
	}
	// It is encoded here: the size is known before anything is kept, and the caller may
	// change m as soon as this returns, while protoactor would encode it later.
	data, err := proto.Marshal(m)
	if err != nil {
		t.lose(address, err)
		return
	}
	if len(data) > LimitEnvelopeBytes {
		t.lose(address, fmt.Errorf("it has %d bytes; the limit is %d", len(data), LimitEnvelopeBytes))
		return
	}
	b := t.backlogOf(address)
	if !b.add(len(data)) {
		t.lose(address, fmt.Errorf("%d messages, %d bytes wait for it already", b.messages.Load(), b.bytes.Load()))
		return
	}
	t.remote.SendMessage(actor.NewPID(address, LinkActor), nil, &unwritten{data: data, backlog: b}, nil, 0)
}

func (t *TCP) lose(address string, err error) {
	t.lines.log(slog.LevelWarn, "a control message is lost", slog.String("to", address), slog.String("why", err.Error()))
}

// checkAddress keeps what gRPC would take for something else, such as unix:name, away from it.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", quoted([]string{address}), err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" || len(address) > LimitAddressBytes {
		return fmt.Errorf("address %s; want host:port", quoted([]string{address}))
	}
	return nil
}

// Redial drops the connection to an address. TCP waits longer and longer before it sends again what
// a broken network has lost, and would still be waiting when the network is back.
func (t *TCP) Redial(address string) {
	t.mu.Lock()
	s := t.streams[address]
	t.mu.Unlock()
	if s == nil || !s.isSettled() || t.ctx.Err() != nil {
		return // there is none, or it is being dialled
	}
	if s.replaced.Swap(true) {
		return
	}
	s.cancel()
	t.cfg.System.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address}) // protoactor forgets it when this returns
}

// dialledBy hears that a process has dialled this one. If the connection to it is an old one, what was
// broken for it is likely to be broken for this process too.
func (t *TCP) dialledBy(address string) {
	t.mu.Lock()
	s := t.streams[address]
	t.mu.Unlock()
	if t.cfg.Returned != nil && s != nil && s.isSettled() && time.Since(s.began) >= redialOld {
		t.cfg.Returned(address)
	}
}

// backlog counts what was handed to protoactor for an address, and not yet taken by its
// writer. When the endpoint of the address ends, what its queue holds is lost, and there is a
// new backlog.
type backlog struct{ messages, bytes atomic.Int64 }

func (b *backlog) add(n int) bool {
	messages, bytes := b.messages.Add(1), b.bytes.Add(int64(n))
	if messages > LimitUnwrittenMessages || bytes > LimitUnwrittenBytes {
		b.remove(n)
		return false
	}
	return true
}

func (b *backlog) remove(n int) {
	b.messages.Add(-1)
	b.bytes.Add(-int64(n))
}

func (t *TCP) backlogOf(address string) *backlog {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.backlogs[address]
	if b == nil {
		b = new(backlog)
		t.backlogs[address] = b
	}
	return b
}

// unwritten is what waits in protoactor's queue. Its writer calls Serialize when it takes it.
type unwritten struct {
	data    []byte
	backlog *backlog
}

var _ remote.RootSerializable = (*unwritten)(nil)

func (u *unwritten) Serialize() (remote.RootSerialized, error) {
	u.backlog.remove(len(u.data))
	// Encoding an empty envelope with these unknown fields gives the same bytes.
	m := new(wire.Envelope)
	m.ProtoReflect().SetUnknown(u.data)
	return serialized{m}, nil
}

// serialized is an envelope that protoactor takes for what Serialize returns.
type serialized struct{ *wire.Envelope }

func (serialized) Deserialize() (remote.RootSerializable, error) {
	return nil, errors.New("envelopes are not made from this")
}

// event hears what protoactor says of its endpoints, after protoactor itself.
func (t *TCP) event(e any) {
	switch e := e.(type) {
	case *remote.EndpointTerminatedEvent:
		t.mu.Lock()
		delete(t.backlogs, e.Address)
		t.mu.Unlock()
	case *remote.EndpointConnectedEvent:
		t.mu.Lock()
		s := t.streams[e.Address]
		t.mu.Unlock()
		if s != nil {
			s.settle()
		}
	}
}

// outStream is what protoactor's writer writes to. It hides failures to connect from it:
// protoactor would sleep, and try again five times whatever happens. Instead the writer sees a
// connection that breaks at once, and its endpoint ends; the next Send makes a new one.
type outStream struct {
	grpc.ClientStream // nil when dead from the start
	t                 *TCP
	address           string
	cancel            context.CancelFunc
	patience          *time.Timer // cancels unless there is an answer; ends with it
	dead              atomic.Bool
	replaced          atomic.Bool // by Redial
	began             time.Time
	err               error // of connecting
	received          int

	// Failing before protoactor has said that the endpoint is connected would leave a new
	// endpoint behind, which nobody asked for and which dials without end.
	settled chan struct{}
	once    sync.Once
}

func (s *outStream) settle() { s.once.Do(func() { close(s.settled) }) }

func (s *outStream) isSettled() bool {
	select {
	case <-s.settled:
		return true
	default:
		return false
	}
}

// openStream is the interceptor of protoactor's client: ctx ends with the transport.
func (t *TCP) openStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	s := &outStream{t: t, address: cc.Target(), settled: make(chan struct{}), began: time.Now()}
	s.cancel = func() { stop(); cancel() }
	t.mu.Lock()
	t.streams[s.address] = s
	t.mu.Unlock()
	s.patience = time.AfterFunc(LimitConnectTime, cancel)
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		s.fail(err)
		return s, nil
	}
	s.ClientStream = stream
	return s, nil
}

// fail makes everything that is written from now on go nowhere.
func (s *outStream) fail(err error) {
	if s.dead.CompareAndSwap(false, true) {
		s.err = err
		if s.t.ctx.Err() == nil {
			s.t.lines.log(slog.LevelInfo, "no control connection", slog.String("to", s.address), slog.String("why", err.Error()))
		}
	}
	s.patience.Stop()
	s.cancel()
}

func (s *outStream) SendMsg(m any) error {
	if s.dead.Load() {
		return nil
	}
	msg, ok := m.(*remote.RemoteMessage)
	if !ok {
		return nil
	}
	// protoactor tells peers whom it has blocked. Here nobody obeys that, and the guard on the
	// other side lets it not pass.
	if server := msg.GetConnectRequest().GetServerConnection(); server != nil {
		server.BlockList = nil
	}
	for _, part := range split(msg) {
		if err := s.ClientStream.SendMsg(part); err != nil {
			return nil // RecvMsg has the reason, and ends the endpoint
		}
	}
	return nil
}

// split cuts a batch that is longer than what the other side takes.
func split(m *remote.RemoteMessage) []*remote.RemoteMessage {
	batch := m.GetMessageBatch()
	total := 0
	for _, e := range batch.GetEnvelopes() {
		total += len(e.GetMessageData())
	}
	if total <= LimitEnvelopeBytes {
		return []*remote.RemoteMessage{m}
	}
	parts := make([]*remote.RemoteMessage, 0, len(batch.GetEnvelopes()))
	for _, e := range batch.GetEnvelopes() {
		parts = append(parts, &remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: &remote.MessageBatch{
			TypeNames: batch.GetTypeNames(),
			Targets:   batch.GetTargets(),
			Envelopes: []*remote.MessageEnvelope{e},
		}}})
	}
	return parts
}

func (s *outStream) RecvMsg(m any) error {
	msg, ok := m.(*remote.RemoteMessage)
	if !ok {
		return fmt.Errorf("a message of type %T", m)
	}
	s.received++
	if s.received == 1 {
		s.recvAnswer(msg)
		return nil
	}
	err := s.err
	if !s.dead.Load() {
		err = s.ClientStream.RecvMsg(msg)
		switch {
		case s.replaced.Load():
			err = errReplaced
		case err == nil:
			err = forbidden("the listener sent a %T", msg.GetMessageType())
		case errors.Is(err, io.EOF): // protoactor would go on writing to it
			err = errors.New("the listener ended the stream")
		}
		s.fail(err)
	}
	select {
	case <-s.settled:
	case <-s.t.ctx.Done(): // a transport that closes stops protoactor's endpoints, new ones too
	case <-time.After(time.Second): // protoactor settles at once, so this is never seen
	}
	s.t.mu.Lock()
	if s.t.streams[s.address] == s {
		delete(s.t.streams, s.address)
	}
	s.t.mu.Unlock()
	if s.replaced.Load() { // protoactor knows, and any error but this would end the new connection's endpoint
		return io.EOF
	}
	return err
}

// recvAnswer waits for the answer to the connect request; where there is none it makes one up.
func (s *outStream) recvAnswer(msg *remote.RemoteMessage) {
	if !s.dead.Load() {
		err := s.ClientStream.RecvMsg(msg)
		if err == nil && msg.GetConnectResponse() == nil {
			err = forbidden("the listener answered with a %T", msg.GetMessageType())
		}
		if err != nil {
			s.fail(err)
		}
	}
	s.patience.Stop()
	if s.dead.Load() {
		msg.MessageType = &remote.RemoteMessage_ConnectResponse{ConnectResponse: &remote.ConnectResponse{}}
	}
}

func (s *outStream) CloseSend() error {
	s.cancel()
	return nil
}

// asWritten resolves an address by not touching it: the dialler does, each time anew. Its
// scheme is what gRPC takes an address without one for, or what an odd host name looks like.
type asWritten string

func asWrittenAll() []resolver.Builder {
	return []resolver.Builder{asWritten("dns"), asWritten("passthrough"), asWritten("unix"), asWritten("unix-abstract"), asWritten("xds")}
}

func (a asWritten) Scheme() string { return string(a) }

func (a asWritten) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	address := target.Endpoint()
	if target.URL.Opaque != "" { // dns:7070 is a host of that name
		address = (&url.URL{Scheme: target.URL.Scheme, Opaque: target.URL.Opaque}).String()
	}
	return a, cc.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: address}}})
}

func (asWritten) ResolveNow(resolver.ResolveNowOptions) {}
func (asWritten) Close()                                {}
