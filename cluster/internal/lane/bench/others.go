package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// rawCodec passes bytes through unchanged.
type rawCodec struct{ memory *memory }

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m := c.memory.get(data.Len())
	data.CopyTo(m.parts[0])
	*v.(*[]byte) = m.parts[0]
	m.done(nil)
	return nil
}

const (
	rawMethod    = "/bench.Raw/Send"
	maxMessage   = 1 << 30
	windowBytes  = 32 << 20
	bufferBytes  = 256 << 10
	protoMessage = 64 << 20 // the longest message for protoactor's remote
)

var rawStream = grpc.StreamDesc{StreamName: "Send", ClientStreams: true, ServerStreams: true}

// serveGRPC receives a stream's messages, and answers when the stream ends.
func serveGRPC(l net.Listener) {
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{newMemory()}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes))
	stream := rawStream
	stream.Handler = func(_ any, s grpc.ServerStream) error {
		var message []byte
		for {
			switch err := s.RecvMsg(&message); {
			case errors.Is(err, io.EOF):
				answer := []byte{1}
				return s.SendMsg(&answer)
			case err != nil:
				return err
			}
		}
	}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Raw", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{stream}}, nil)
	_ = server.Serve(l)
}

func dialGRPC(address string) (func(size, n int) (time.Duration, error), func(), error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{newMemory()}), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes))
	if err != nil {
		return nil, nil, err
	}
	send := func(size, n int) (time.Duration, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		start := time.Now()
		stream, err := conn.NewStream(ctx, &rawStream, rawMethod)
		if err != nil {
			return 0, err
		}
		message := pattern[:size]
		for range n {
			if err := stream.SendMsg(&message); err != nil {
				return 0, err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return 0, err
		}
		var answer []byte
		err = stream.RecvMsg(&answer)
		return time.Since(start), err
	}
	return send, func() { _ = conn.Close() }, nil
}

func newProto(port int) (*actor.ActorSystem, *remote.Remote) {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	r := remote.NewRemote(system, remote.Configure("127.0.0.1", port, remote.WithEndpointWriterBatchSize(1),
		remote.WithServerOptions(grpc.MaxRecvMsgSize(maxMessage)),
		remote.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))))
	r.Start()
	return system, r
}

// serveProto spawns an actor that answers each message with an empty one.
func serveProto() (string, error) {
	system, _ := newProto(0)
	_, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*wrapperspb.BytesValue); ok {
			c.Respond(&wrapperspb.BoolValue{Value: true})
		}
	}), "receiver")
	return system.Address(), err
}

func dialProto(address string) (func(size, n int) (time.Duration, error), error) {
	system, _ := newProto(0)
	to := actor.NewPID(address, "receiver")
	answered := make(chan struct{}, 1<<16)
	var mu sync.Mutex
	from, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*wrapperspb.BoolValue); ok {
			answered <- struct{}{}
		}
	}), "sender")
	if err != nil {
		return nil, err
	}
	return func(size, n int) (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		message := &wrapperspb.BytesValue{Value: pattern[:size]}
		inFlight := min(max(limitInFlight/size, 2), 256)
		start := time.Now()
		sent, got := 0, 0
		timeout := time.After(time.Minute)
		for got < n {
			if sent < n && sent-got < inFlight {
				system.Root.RequestWithCustomSender(to, message, from)
				sent++
				continue
			}
			select {
			case <-answered:
				got++
			case <-timeout:
				return 0, errors.New("protoactor's remote did not answer within a minute")
			}
		}
		return time.Since(start), nil
	}, nil
}
