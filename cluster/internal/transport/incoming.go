package transport

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Headers in which the guard tells the link actor who sent an envelope. protoactor passes them on; the
// guard refuses headers from other processes.
const (
	headerName    = "name"
	headerRole    = "role"
	headerAddress = "address"
	headerUnits   = "units"
)

// unaryRefused refuses all unary calls.
func (t *TCP) unaryRefused(ctx context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	if p, ok := peer.FromContext(ctx); ok {
		t.refuse(p.Addr, forbidden("it calls %s", quoted([]string{info.FullMethod})))
	}
	return nil, status.Error(codes.Unimplemented, "this method is not available")
}

// guarded runs the guard before protoactor.
func (t *TCP) guarded(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	from, ok := peer.FromContext(stream.Context())
	if !ok || info.FullMethod != remote.Remoting_Receive_FullMethodName {
		return status.Error(codes.Unimplemented, "this method is not available")
	}
	id, ok := from.AuthInfo.(identity)
	if !ok {
		return status.Error(codes.Unauthenticated, "the connection did not come through the gate")
	}
	header := map[string]string{}
	if id.known {
		if !t.enter(id.peer.Name) {
			err := fmt.Errorf("%w: %d control connections of %s are open, the limit", errBusy, LimitControlPerPeer, id.peer.Name)
			t.refuse(from.Addr, err)
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		defer t.leave(id.peer.Name)
		header = map[string]string{headerName: id.peer.Name, headerRole: id.peer.Role, headerAddress: id.peer.Address}
	}
	header[headerUnits] = "1"
	return handler(srv, &guardedStream{
		ServerStream: stream,
		t:            t,
		from:         from,
		guard:        guard{peer: id.peer, known: id.known},
		header:       &remote.MessageHeader{HeaderData: header},
	})
}

func (t *TCP) enter(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.controls[name] >= LimitControlPerPeer {
		return false
	}
	t.controls[name]++
	return true
}

func (t *TCP) leave(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.controls[name]--; t.controls[name] == 0 {
		delete(t.controls, name)
	}
}

type guardedStream struct {
	grpc.ServerStream
	t      *TCP
	from   *peer.Peer
	guard  guard
	header *remote.MessageHeader // for envelopes of one unit
}

func (s *guardedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil {
		switch status.Code(err) {
		case codes.ResourceExhausted, codes.Internal, codes.InvalidArgument: // too large, refused by the codec
			s.t.refuse(s.from.Addr, err)
		}
		return err
	}
	msg, ok := m.(*remote.RemoteMessage)
	if !ok {
		return status.Errorf(codes.Internal, "unexpected message type %T", m)
	}
	if err := s.guard.check(msg); err != nil {
		s.t.refuse(s.from.Addr, err)
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if server := msg.GetConnectRequest().GetServerConnection(); server != nil {
		s.t.dialledBy(server.GetAddress())
	}
	for _, e := range msg.GetMessageBatch().GetEnvelopes() {
		units := 1 + len(e.GetMessageData())/unhandledUnit
		if err := s.t.unhandled.acquire(s.Context(), units); err != nil {
			return status.FromContextError(err).Err()
		}
		e.MessageHeader = s.header
		if units > 1 {
			e.MessageHeader = s.headerOf(units)
		}
	}
	return nil
}

func (s *guardedStream) headerOf(units int) *remote.MessageHeader {
	header := make(map[string]string, len(s.header.GetHeaderData()))
	for key, value := range s.header.GetHeaderData() {
		header[key] = value
	}
	header[headerUnits] = strconv.Itoa(units)
	return &remote.MessageHeader{HeaderData: header}
}

// checkingCodec checks messages before it decodes them.
type checkingCodec struct{ encoding.CodecV2 }

func newCheckingCodec() checkingCodec {
	return checkingCodec{encoding.GetCodecV2(grpcproto.Name)}
}

func (c checkingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if _, ok := v.(*remote.RemoteMessage); ok {
		if err := checkEncoded(buf.ReadOnlyData()); err != nil {
			return err
		}
	}
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

// linkActor is the only actor that receives messages from other processes.
type linkActor struct{ t *TCP }

func (l *linkActor) Receive(ctx actor.Context) {
	if _, stopped := ctx.Message().(*actor.Stopped); stopped {
		close(l.t.linkEnded)
		return
	}
	m, ok := ctx.Message().(*wire.Envelope)
	if !ok {
		return // one of protoactor's own messages, such as Started
	}
	header := ctx.MessageHeader()
	units, err := strconv.Atoi(header.Get(headerUnits))
	if err != nil {
		l.t.lines.log(slog.LevelWarn, "dropped an envelope that bypassed the guard")
		return
	}
	defer l.t.unhandled.release(units)
	defer func() {
		// protoactor would recover too, but restart this actor silently.
		if r := recover(); r != nil {
			l.t.cfg.Logger.Error("panic in the handler of envelopes", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if l.t.cfg.Envelope != nil {
		l.t.cfg.Envelope(Peer{Name: header.Get(headerName), Role: header.Get(headerRole), Address: header.Get(headerAddress)}, m)
	}
}

// units is a semaphore for LimitUnhandledBytes.
type units struct {
	turn chan struct{} // one goroutine acquires at a time, so that two can't block each other halfway
	free chan struct{}
}

func newUnits(n int) *units {
	u := &units{turn: make(chan struct{}, 1), free: make(chan struct{}, n)}
	for range n {
		u.free <- struct{}{}
	}
	return u
}

func (u *units) acquire(ctx context.Context, n int) error {
	select {
	case u.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-u.turn }()
	for got := range n {
		select {
		case <-u.free:
		case <-ctx.Done():
			u.release(got)
			return ctx.Err()
		}
	}
	return nil
}

func (u *units) release(n int) {
	for range n {
		u.free <- struct{}{}
	}
}
