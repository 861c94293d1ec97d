package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/sysinfo"
	"github.com/troupe-ml/troupe/internal/wire"
)

// probeProtocol is the name of the streams by which the way to another process is measured:
// the one that dials writes a length and that many bytes, the other answers with the processor
// time that it has spent on them, eight bytes of nanoseconds.
const probeProtocol = "probe"

const (
	limitProbeBytes = 64 << 20
	probeBytes      = 8 << 20
	probePings      = 21
	probeBlocks     = 9
	probeBlocksTime = 200 * time.Millisecond // after which no further one is sent
	probeTime       = 30 * time.Second
)

// blockTrip is what probeBytes took on their way, and of both processors.
type blockTrip struct{ took, sending, receiving time.Duration }

// serveProbe swallows what comes.
func serveProbe(conn net.Conn, _ transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	if conn.SetDeadline(time.Now().Add(probeTime)) != nil {
		return
	}
	var n [4]byte
	var spent [8]byte
	for {
		if _, err := io.ReadFull(conn, n[:]); err != nil {
			return
		}
		size := binary.LittleEndian.Uint32(n[:])
		if size > limitProbeBytes {
			return
		}
		began := sysinfo.CPUTime()
		if _, err := io.CopyN(io.Discard, conn, int64(size)); err != nil {
			return
		}
		binary.LittleEndian.PutUint64(spent[:], uint64(sysinfo.CPUTime()-began)) //nolint:gosec // it only grows
		if _, err := conn.Write(spent[:]); err != nil {
			return
		}
	}
}

// measureLink measures the way to another process: half of the middle one of some round trips, the
// bytes that arrive a second beyond that, in the middle one of some blocks, and what they take of both processors.
func measureLink(ctx context.Context, t transport.Transport, p *wire.Peer) *wire.Link {
	l := &wire.Link{To: p.GetName()}
	if err := measureInto(ctx, t, p, l); err != nil {
		l.Error = fmt.Sprintf("%.1000s", err)
	}
	return l
}

func measureInto(ctx context.Context, t transport.Transport, p *wire.Peer, l *wire.Link) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	address := p.GetDataAddress()
	if address == "" {
		address = p.GetAddress()
	}
	conn, err := t.Dial(ctx, address, probeProtocol)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	if err := conn.SetDeadline(time.Now().Add(probeTime)); err != nil {
		return err
	}
	block := make([]byte, 4+probeBytes)
	var answer [8]byte
	trip := func(n int) (time.Duration, error) {
		binary.LittleEndian.PutUint32(block, uint32(n)) //nolint:gosec // at most probeBytes
		began := time.Now()
		if _, err := conn.Write(block[:4+n]); err != nil {
			return 0, err
		}
		_, err := io.ReadFull(conn, answer[:])
		return time.Since(began), err
	}
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
	var blocks []blockTrip
	for began := time.Now(); len(blocks) < probeBlocks && (len(blocks) == 0 || time.Since(began) < probeBlocksTime); {
		spent := sysinfo.CPUTime()
		took, err := trip(probeBytes)
		if err != nil {
			return err
		}
		blocks = append(blocks, blockTrip{took, sysinfo.CPUTime() - spent, time.Duration(binary.LittleEndian.Uint64(answer[:]))}) //nolint:gosec // a forecast refuses what is negative
	}
	slices.SortFunc(blocks, func(a, b blockTrip) int { return cmp.Compare(a.took, b.took) })
	middle := blocks[len(blocks)/2]
	l.LatencyMs = float64(ping) / 2 / float64(time.Millisecond)
	l.BytesPerS = probeBytes / max(middle.took-ping, time.Microsecond).Seconds()
	l.SendNs, l.ReceiveNs = float64(middle.sending)/probeBytes, float64(middle.receiving)/probeBytes
	l.Processors = int32(runtime.NumCPU()) //nolint:gosec // a number of processors
	return nil
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
	c.asked[m.GetRequest()] = reply
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

// replied hands a reply to the one who asked. It reports whether it was one.
func (c *Coordinator) replied(m *wire.Control) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply := c.asked[m.GetRequest()]
	if reply == nil {
		return false
	}
	delete(c.asked, m.GetRequest())
	reply <- m
	return true
}
