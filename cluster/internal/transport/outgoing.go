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

// Send sends m, or loses it.
func (t *TCP) Send(address string, m *wire.Envelope) {
	if t.ctx.Err() != nil {
		return
	}
	if err := checkAddress(address); err != nil {
		t.lose(address, err)
		return
	}
	// It is encoded here, so that its size is known before it is queued, and the caller may change m
	// as soon as Send returns; protoactor would encode it later.
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
		t.lose(address, fmt.Errorf("%d messages with %d bytes already wait for this address", b.messages.Load(), b.bytes.Load()))
		return
	}
	t.remote.SendMessage(actor.NewPID(address, LinkActor), nil, &unwritten{data: data, backlog: b}, nil, 0)
}

func (t *TCP) lose(address string, err error) {
	t.lines.log(slog.LevelWarn, "lost a control message", slog.String("to", address), slog.String("why", err.Error()))
}

// checkAddress refuses addresses that gRPC would interpret differently, such as unix:name.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address is %s; want host:port: %w", quoted([]string{address}), err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" || len(address) > LimitAddressBytes {
		return fmt.Errorf("the address is %s; want host:port", quoted([]string{address}))
	}
	return nil
}

// Redial drops the connection to an address. TCP retransmits after longer and longer pauses, and would
// still be waiting when a broken network is back.
func (t *TCP) Redial(address string) {
	t.mu.Lock()
	s := t.streams[address]
	t.mu.Unlock()
	if s == nil || !s.isSettled() || t.ctx.Err() != nil {
		return // there is no connection, or it is being dialed
	}
	if s.replaced.Swap(true) {
		return
	}
	s.cancel()
	t.cfg.System.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address}) // protoactor drops the endpoint before this returns
}

// dialledBy handles that a process has dialed this one. If the connection to that process is old, it is
// probably broken too, as the process's own was.
func (t *TCP) dialledBy(address string) {
	t.mu.Lock()
	s := t.streams[address]
	t.mu.Unlock()
	if t.cfg.Returned != nil && s != nil && s.isSettled() && time.Since(s.began) >= redialOld {
		t.cfg.Returned(address)
	}
}

// backlog counts the messages for an address in protoactor's queue. When the address's endpoint ends,
// the queued messages are lost, and a new backlog begins.
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

// unwritten is a message in protoactor's queue. protoactor's writer calls Serialize when it takes it.
type unwritten struct {
	data    []byte
	backlog *backlog
}

var _ remote.RootSerializable = (*unwritten)(nil)

func (u *unwritten) Serialize() (remote.RootSerialized, error) {
	u.backlog.remove(len(u.data))
	// An empty envelope with these unknown fields encodes to the same bytes.
	m := new(wire.Envelope)
	m.ProtoReflect().SetUnknown(u.data)
	return serialized{m}, nil
}

// serialized is an envelope with the interface of Serialize's result.
type serialized struct{ *wire.Envelope }

func (serialized) Deserialize() (remote.RootSerializable, error) {
	return nil, errors.New("an envelope can't be deserialized from this")
}

// event handles protoactor's events about its endpoints, after protoactor itself.
func (t *TCP) event(e any) {
	switch e := e.(type) {
	case *remote.EndpointTerminatedEvent:
		t.mu.Lock()
		delete(t.backlogs, e.Address)
		if s := t.streams[e.Address]; s != nil && !s.isSettled() {
			s.doubted.Store(true)
		}
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

// outStream is the stream that protoactor's writer writes to. It hides failures to connect, after which
// protoactor would sleep and try five more times in any case. Instead the writer sees a connection
// that breaks at once, and its endpoint ends; the next Send makes a new one.
type outStream struct {
	grpc.ClientStream // nil if it never connected
	t                 *TCP
	address           string
	cancel            context.CancelFunc
	patience          *time.Timer // cancels the stream if there is no answer; stopped by the answer
	dead              atomic.Bool
	replaced          atomic.Bool // by Redial
	doubted           atomic.Bool // its endpoint may have ended before it was settled
	began             time.Time
	err               error // of connecting
	received          int

	// A failure before protoactor's event that the endpoint is connected would leave a new endpoint
	// that redials forever.
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

// openStream is the stream interceptor of protoactor's client.
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

// fail makes the stream discard everything that is written from now on.
func (s *outStream) fail(err error) {
	if s.dead.CompareAndSwap(false, true) {
		s.err = err
		if s.t.ctx.Err() == nil {
			s.t.lines.log(slog.LevelInfo, "control connection failed", slog.String("to", s.address), slog.String("why", err.Error()))
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
	// protoactor tells peers which processes it has blocked. The other side's guard refuses that.
	if server := msg.GetConnectRequest().GetServerConnection(); server != nil {
		server.BlockList = nil
	}
	for _, part := range split(msg) {
		if err := s.ClientStream.SendMsg(part); err != nil {
			return nil // RecvMsg gets the reason and ends the endpoint
		}
	}
	return nil
}

// split splits a batch that exceeds the other side's limit.
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
		return fmt.Errorf("unexpected message type %T", m)
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
		case errors.Is(err, io.EOF): // with io.EOF protoactor would continue to write to it
			err = errors.New("the listener ended the stream")
		}
		s.fail(err)
	}
	select {
	case <-s.settled:
	case <-s.t.ctx.Done(): // closing the transport stops all of protoactor's endpoints
	case <-time.After(time.Second): // protoactor settles at once, so this does not happen
	}
	if s.followed() || s.replaced.Load() { // protoactor knows; any other error would end the new connection's endpoint
		return io.EOF
	}
	return err
}

// followed reports whether the address has an endpoint with a newer stream; otherwise it forgets this one. If an endpoint ends while its
// stream is being dialed, because the process has left, protoactor makes another endpoint when the stream is settled. The error of each
// stream would then end the endpoint of the next, while that is dialed, and the address would be dialed forever.
func (s *outStream) followed() bool {
	for end := time.Now().Add(followTime); s.latest() && s.doubted.Load() && s.t.ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(followTime / 100) // until the other endpoint dials
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	last := s.t.streams[s.address]
	if last == s {
		delete(s.t.streams, s.address)
	}
	return last != s && last != nil
}

// latest reports whether the address has no newer stream.
func (s *outStream) latest() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.t.streams[s.address] == s
}

// recvAnswer waits for the answer to the connect request. If there is none, it fakes one.
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

// asWritten resolves an address to itself, because the dialer looks it up at each dial. It is registered
// for the schemes that gRPC assumes for an address without one, or might see in an odd host name.
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
