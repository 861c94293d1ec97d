package cluster

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// probeProtocol is the name of the streams that measure the link to another process. The dialing
// process writes a length and that many bytes; the other replies with one byte.
const probeProtocol = "probe"

const (
	limitProbeBytes = 64 << 20
	probeBytes      = 8 << 20
	probePings      = 21
	probeBlocks     = 9
	probeBlocksTime = 200 * time.Millisecond // after it no further block is sent
	probeTime       = 30 * time.Second
)

// prober is the replying end of such streams.
type prober struct{ received atomic.Int64 } // bytes

func (p *prober) Write(b []byte) (int, error) {
	p.received.Add(int64(len(b)))
	return len(b), nil
}

// serve reads and discards blocks, and replies to each.
func (p *prober) serve(conn net.Conn, _ transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	if conn.SetDeadline(time.Now().Add(probeTime)) != nil {
		return
	}
	var n [4]byte
	for {
		if _, err := io.ReadFull(conn, n[:]); err != nil {
			return
		}
		size := binary.LittleEndian.Uint32(n[:])
		if size > limitProbeBytes {
			return
		}
		if _, err := io.CopyN(p, conn, int64(size)); err != nil {
			return
		}
		if _, err := conn.Write([]byte{0}); err != nil {
			return
		}
	}
}

// dialProbe opens a stream to another process. trip sends n bytes, at most probeBytes, and returns the time until the reply.
func dialProbe(ctx context.Context, t transport.Transport, p *wire.Peer) (trip func(n int) (time.Duration, error), end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	address := p.GetDataAddress()
	if address == "" {
		address = p.GetAddress()
	}
	conn, err := t.Dial(ctx, address, probeProtocol)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(probeTime)); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	block := make([]byte, 4+probeBytes)
	var answer [1]byte
	return func(n int) (time.Duration, error) {
		binary.LittleEndian.PutUint32(block, uint32(n))
		began := time.Now()
		if _, err := conn.Write(block[:4+n]); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, answer[:])
		return time.Since(began), err
	}, func() { _ = conn.Close() }, nil
}

// ownAddress is an address that a process advertises, with the flags that set it.
type ownAddress struct{ address, flags string }

func ownAddresses(p *wire.Peer) []ownAddress {
	all := []ownAddress{{p.GetAddress(), "--listen, --advertise"}}
	if data := p.GetDataAddress(); data != "" && data != p.GetAddress() {
		all = append(all, ownAddress{data, "--data-address"})
	}
	return all
}

// touch opens a stream to a process and closes it, to check that the process can be reached.
func touch(ctx context.Context, address string, dial func(ctx context.Context, address, protocol string) (net.Conn, error)) error {
	conn, err := dial(ctx, address, probeProtocol)
	if err != nil {
		return pki.Explain(err)
	}
	return conn.Close()
}
