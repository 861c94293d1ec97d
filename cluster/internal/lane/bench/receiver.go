package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/secure"
)

// receive serves all transports until standard input ends.
func receive() error {
	var at addresses
	var servers []func(net.Listener)
	certificate, err := newCertificate()
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	node := newReceiver()
	acceptLane := func(conn net.Conn) { node.Accept(conn, nil) }
	var listeners []net.Listener
	listen := func(address *string, serve func(net.Listener)) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*address = l.Addr().String()
		listeners, servers = append(listeners, l), append(servers, serve)
		return nil
	}
	err = errors.Join(
		listen(&at.TCP, each(serveRaw)),
		listen(&at.TLS, each(func(c net.Conn) { serveRaw(tls.Server(c, config)) })),
		listen(&at.Lane, each(acceptLane)),
		listen(&at.LaneTLS, each(func(c net.Conn) { acceptLane(secure.Server(c, config)) })),
		listen(&at.GRPC, serveGRPC),
		listen(&at.Heap, each(serveHeap)),
	)
	if err != nil {
		return err
	}
	if at.Proto, err = serveProto(); err != nil {
		return err
	}
	for k, serve := range servers {
		go serve(listeners[k])
	}
	line, err := json.Marshal(at)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func each(serve func(net.Conn)) func(net.Listener) {
	return func(l net.Listener) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}
}

// A raw request has the size of the messages, their number, and whether they are sent back.
const requestBytes = 17

// serveRaw reads messages into one buffer. It sends each message back, or replies with one byte after the last.
func serveRaw(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var request [requestBytes]byte
	buffers := make(map[int][]byte)
	for {
		if _, err := io.ReadFull(conn, request[:]); err != nil {
			return
		}
		size := int(binary.LittleEndian.Uint64(request[:]))
		n := int(binary.LittleEndian.Uint64(request[8:]))
		back := request[16] != 0
		if buffers[size] == nil {
			buffers[size] = make([]byte, size)
		}
		for range n {
			if _, err := io.ReadFull(conn, buffers[size]); err != nil {
				return
			}
			if back {
				if _, err := conn.Write(buffers[size]); err != nil {
					return
				}
			}
		}
		if !back {
			if _, err := conn.Write([]byte{1}); err != nil {
				return
			}
		}
	}
}

var (
	senderID     = lane.ID{1}
	senderTLSID  = lane.ID{2}
	senderShmID  = lane.ID{3}
	senderCRCID  = lane.ID{4}
	receiverID   = lane.ID{9}
	discardGroup = lane.ID{1}
	echoGroup    = lane.ID{2}
)

// newReceiver returns a node that receives messages into memory that it reuses, and sends messages of echoGroup back to
// the address in their header.
func newReceiver() *lane.Node {
	node := lane.New(lane.Config{Self: receiverID, Dial: dialTCP, NoSharedMemory: false})
	memory := newMemory()
	node.Open(discardGroup, func(_ lane.ID, _ []byte, lens []int) ([][]byte, func(error), error) {
		m := memory.get(lens[0])
		return m.parts, m.done, nil
	})
	var echo *lane.Group
	echo = node.Open(echoGroup, func(from lane.ID, header []byte, lens []int) ([][]byte, func(error), error) {
		m := memory.get(lens[0])
		m.from, m.header = from, append(m.header[:0], header...)
		if m.echo == nil {
			back := func(error) { m.done(nil) }
			m.echo = func(err error) {
				if err == nil {
					echo.Send(m.from, m.header, m.parts, back)
				}
			}
		}
		node.SetPeer(from, addressOf(header))
		return m.parts, m.echo, nil
	})
	return node
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// memory is a pool of buffers for messages.
type memory struct {
	mu   sync.Mutex
	free map[int][]*buffer
}

type buffer struct {
	parts [][]byte
	done  func(error)
	echo  func(error) // sends the message back

	from   lane.ID
	header []byte
}

func newMemory() *memory { return &memory{free: make(map[int][]*buffer)} }

func (m *memory) get(size int) *buffer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if free := m.free[size]; len(free) > 0 {
		b := free[len(free)-1]
		m.free[size] = free[:len(free)-1]
		return b
	}
	b := &buffer{parts: [][]byte{make([]byte, size)}}
	b.done = func(error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.free[size] = append(m.free[size], b)
	}
	return b
}
