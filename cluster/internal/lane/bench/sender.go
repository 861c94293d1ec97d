package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/secure"
)

// headerBytes is the length of the header of each message over the lane.
const headerBytes = 64

// pattern has the bytes that all messages are cut from.
var pattern = func() []byte {
	b := make([]byte, 64<<20)
	for k := range b {
		b[k] = byte(k * 7)
	}
	return b
}()

//nolint:gosec // both ends belong to this benchmark
var anyCertificate = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}

// dialAll connects all transports.
func dialAll(at addresses, streams int) ([]way, func(), error) {
	raw, err := net.Dial("tcp", at.TCP)
	if err != nil {
		return nil, nil, err
	}
	bare, err := tls.Dial("tcp", at.TLS, anyCertificate)
	if err != nil {
		return nil, nil, err
	}
	plain := newLaneWay(lane.Config{Self: senderID, Dial: dialTCP, Streams: streams, NoSharedMemory: true}, at.Lane)
	summed := newLaneWay(lane.Config{Self: senderCRCID, Dial: dialTCP, Streams: streams, NoSharedMemory: true, Checksum: true}, at.Lane)
	overTLS := newLaneWay(lane.Config{Self: senderTLSID, Streams: streams, NoSharedMemory: true,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dialTCP(ctx, address)
			if err != nil {
				return nil, err
			}
			return secure.Client(conn, anyCertificate), nil
		}}, at.LaneTLS)
	shared := newLaneWay(lane.Config{Self: senderShmID, Dial: dialTCP, Streams: streams}, at.Lane)
	grpc, closeGRPC, err := dialGRPC(at.GRPC)
	if err != nil {
		return nil, nil, err
	}
	proto, err := dialProto(at.Proto)
	if err != nil {
		return nil, nil, err
	}
	ways := []way{
		{name: "tcp", send: rawSend(raw), roundTrips: rawTrips(raw)},
		{name: "lane", send: plain.send, roundTrips: plain.roundTrips},
		{name: "lane+crc", send: summed.send},
		{name: "tls", send: rawSend(bare)},
		{name: "lane+tls", send: overTLS.send},
		{name: "lane+shm", send: shared.send, roundTrips: shared.roundTrips},
		{name: "grpc", send: grpc},
		{name: "proto", send: proto},
	}
	return ways, func() {
		for _, l := range []*laneWay{plain, summed, overTLS, shared} {
			l.node.Close()
		}
		_ = raw.Close()
		_ = bare.Close()
		closeGRPC()
	}, nil
}

func request(size, n int, back bool) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(size))
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	if back {
		return append(b, 1)
	}
	return append(b, 0)
}

func rawSend(conn net.Conn) func(size, n int) (time.Duration, error) {
	return func(size, n int) (time.Duration, error) {
		start := time.Now()
		if _, err := conn.Write(request(size, n, false)); err != nil {
			return 0, err
		}
		for range n {
			if _, err := conn.Write(pattern[:size]); err != nil {
				return 0, err
			}
		}
		var answer [1]byte
		_, err := io.ReadFull(conn, answer[:])
		return time.Since(start), err
	}
}

func rawTrips(conn net.Conn) func(size, n int) (time.Duration, error) {
	got := make([]byte, 1<<20)
	return func(size, n int) (time.Duration, error) {
		start := time.Now()
		if _, err := conn.Write(request(size, n, true)); err != nil {
			return 0, err
		}
		for range n {
			if _, err := conn.Write(pattern[:size]); err != nil {
				return 0, err
			}
			if _, err := io.ReadFull(conn, got[:size]); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// laneWay sends over its own lane node.
type laneWay struct {
	node    *lane.Node
	discard *lane.Group
	echo    *lane.Group
	header  []byte // contains this node's address
	back    chan struct{}
	parts   [][]byte
}

func newLaneWay(config lane.Config, address string) *laneWay {
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	w := &laneWay{node: lane.New(config), back: make(chan struct{}, 1), parts: make([][]byte, 1)}
	w.node.SetPeer(receiverID, address)
	w.discard = w.node.Open(discardGroup, nil)
	memory := newMemory()
	w.echo = w.node.Open(echoGroup, func(_ lane.ID, _ []byte, lens []int) ([][]byte, func(error), error) {
		m := memory.get(lens[0])
		if m.echo == nil {
			m.echo = func(error) { m.done(nil); w.back <- struct{}{} }
		}
		return m.parts, m.echo, nil
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // loopback always works
	}
	go each(func(conn net.Conn) { w.node.Accept(conn, nil) })(l)
	w.header = make([]byte, headerBytes)
	copy(w.header, l.Addr().String())
	return w
}

func addressOf(header []byte) string {
	for k, b := range header {
		if b == 0 {
			return string(header[:k])
		}
	}
	return string(header)
}

// limitInFlight bounds the unacknowledged bytes; those of a training step are bounded too.
const limitInFlight = 32 << 20

func (w *laneWay) send(size, n int) (time.Duration, error) {
	inFlight := min(max(limitInFlight/size, 2), 256)
	credits := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	var first error
	var once sync.Once
	wg.Add(n)
	done := func(err error) {
		if err != nil {
			once.Do(func() { first = err })
		}
		<-credits
		wg.Done()
	}
	w.parts[0] = pattern[:size]
	start := time.Now()
	for range n {
		credits <- struct{}{}
		w.discard.Send(receiverID, w.header, w.parts, done)
	}
	wg.Wait()
	return time.Since(start), first
}

func (w *laneWay) roundTrips(size, n int) (time.Duration, error) {
	w.parts[0] = pattern[:size]
	failed := make(chan error, 1)
	done := func(err error) {
		if err != nil {
			failed <- err
		}
	}
	start := time.Now()
	for range n {
		w.echo.Send(receiverID, w.header, w.parts, done)
		select {
		case <-w.back:
		case err := <-failed:
			return 0, err
		}
	}
	return time.Since(start), nil
}
