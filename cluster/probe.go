package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// probeProtocol is the name of the streams by which the way to another process is measured:
// the one that dials writes a length and that many bytes, the other answers with a byte.
const probeProtocol = "probe"

const (
	limitProbeBytes = 64 << 20
	probeBytes      = 8 << 20
	probePings      = 21
	probeBlocks     = 9
	probeBlocksTime = 200 * time.Millisecond // after which no further one is sent
	probeTime       = 30 * time.Second
)

// prober is the end of such streams that answers.
type prober struct{ received atomic.Int64 } // bytes

func (p *prober) Write(b []byte) (int, error) {
	p.received.Add(int64(len(b)))
	return len(b), nil
}

// serve swallows what comes.
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

// measureLink measures the way to another process: half of the middle one of some round trips, the
// bytes that arrive a second beyond that, in the middle one of some blocks.
func measureLink(ctx context.Context, t transport.Transport, p *wire.Peer) *wire.Link {
	l := &wire.Link{To: p.GetName()}
	if err := measureInto(ctx, t, p, l); err != nil {
		l.Error = fmt.Sprintf("%.1000s", err)
	}
	return l
}

func measureInto(ctx context.Context, t transport.Transport, p *wire.Peer, l *wire.Link) error {
	trip, end, err := dialProbe(ctx, t, p)
	if err != nil {
		return err
	}
	defer end()
	var pings [probePings]time.Duration
	for i := range pings {
		if pings[i], err = trip(0); err != nil {
			return err
		}
	}
	slices.Sort(pings[:])
	ping := pings[len(pings)/2]
	if _, err := trip(probeBytes); err != nil { // which finds out how fast it may go
		return err
	}
	var blocks []time.Duration
	for began := time.Now(); len(blocks) < probeBlocks && (len(blocks) == 0 || time.Since(began) < probeBlocksTime); {
		took, err := trip(probeBytes)
		if err != nil {
			return err
		}
		blocks = append(blocks, took)
	}
	slices.Sort(blocks)
	middle := blocks[len(blocks)/2]
	l.LatencyMs = float64(ping) / 2 / float64(time.Millisecond)
	l.BytesPerS = probeBytes / max(middle-pings[0], time.Microsecond).Seconds() // the shortest: while others send, most wait behind what they do
	return nil
}

// dialProbe opens a stream to another process; trip sends some bytes, at most probeBytes, and returns when they have been answered.
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
		binary.LittleEndian.PutUint32(block, uint32(n)) //nolint:gosec // at most probeBytes
		began := time.Now()
		if _, err := conn.Write(block[:4+n]); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, answer[:])
		return time.Since(began), err
	}, func() { _ = conn.Close() }, nil
}

// connect measures the ways from this worker to others.
func (w *membership) connect(number uint64, m *wire.Connect) {
	answer := &wire.Connected{}
	for _, p := range m.GetPeers() {
		answer.Links = append(answer.Links, measureLink(context.Background(), w.transport, p))
	}
	w.tell(&wire.Control{Request: number, Kind: &wire.Control_Connected{Connected: answer}})
}

// ask sends a worker a request and waits for its reply.
func (c *Coordinator) ask(ctx context.Context, worker uuid.UUID, m *wire.Control) (*wire.Control, error) {
	reply := make(chan *wire.Control, 1)
	c.mu.Lock()
	c.requests++
	m.Request = c.requests
	c.asked[m.GetRequest()] = question{worker, reply}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asked, m.GetRequest())
	}()
	if err := c.mesh.Control(worker, m); err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		_, there := c.workers[worker]
		changed := c.changed
		c.mu.Unlock()
		if !there {
			return nil, fmt.Errorf("worker %v is gone", worker)
		}
		select {
		case got := <-reply:
			return got, nil
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// question is a request that a worker has been sent.
type question struct {
	worker uuid.UUID
	reply  chan *wire.Control // with room for it
}

// replied hands a reply to the one who asked. It reports whether it was one, from the worker that was asked.
func (c *Coordinator) replied(from uuid.UUID, m *wire.Control) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, asked := c.asked[m.GetRequest()]
	if !asked || q.worker != from {
		return false
	}
	delete(c.asked, m.GetRequest())
	q.reply <- m
	return true
}

// eachOf asks of all workers at once, and returns what was answered in their order: its errors name them.
func eachOf[T any](workers []*share, ask func(i int) (T, error)) ([]T, error) {
	answers, errs := make([]T, len(workers)), make([]error, len(workers))
	var asked sync.WaitGroup
	for i, s := range workers {
		asked.Go(func() { // ends with ask
			if answers[i], errs[i] = ask(i); errs[i] != nil {
				errs[i] = fmt.Errorf("worker %s: %w", s.Name, errs[i])
			}
		})
	}
	asked.Wait()
	return answers, errors.Join(errs...)
}
