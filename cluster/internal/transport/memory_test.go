package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// box collects envelopes.
type box struct {
	mu   sync.Mutex
	got  []uint64
	from []transport.Peer
	more chan struct{}
}

func newBox() *box { return &box{more: make(chan struct{}, 1)} }

func (b *box) handlers(streams map[string]func(net.Conn, transport.Peer)) transport.Handlers {
	return transport.Handlers{Streams: streams, Envelope: func(from transport.Peer, m *wire.Envelope) {
		b.mu.Lock()
		b.got = append(b.got, m.GetSeq())
		b.from = append(b.from, from)
		b.mu.Unlock()
		select {
		case b.more <- struct{}{}:
		default:
		}
	}}
}

func (b *box) await(t *testing.T, n int) []uint64 {
	t.Helper()
	late := time.After(time.Minute)
	for {
		b.mu.Lock()
		got := slices.Clone(b.got)
		b.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-b.more:
		case <-late:
			t.Fatalf("%d messages arrived; want %d", len(got), n)
		}
	}
}

func TestMemoryEnvelopes(t *testing.T) {
	network := transport.NewMemory()
	b := newBox()
	x := network.Listen("x", nil, transport.Handlers{})
	defer x.Close()
	network.SetPeer("x", transport.Peer{Name: "x", Role: "worker"})
	y := network.Listen("y", nil, b.handlers(nil))
	m := &wire.Envelope{}
	for m.Seq = 1; m.Seq <= 1000; m.Seq++ { // nothing of m is kept
		x.Send("y", m)
	}
	got := b.await(t, 1000)
	for i, seq := range got {
		if seq != uint64(i+1) {
			t.Fatalf("message %d is %d", i, seq)
		}
	}
	if b.from[0].Name != "x" {
		t.Errorf("from %+v", b.from[0])
	}
	y.Close()
	x.Send("y", m) // nobody there
	y = network.Listen("y", nil, b.handlers(nil))
	defer y.Close()
	x.Send("y", m)
	b.await(t, 1001)
}

func TestMemoryFaults(t *testing.T) {
	run := func(seed uint64) []uint64 {
		network := transport.NewMemory()
		b := newBox()
		x := network.Listen("x", nil, transport.Handlers{})
		defer x.Close()
		y := network.Listen("y", nil, b.handlers(nil))
		defer y.Close()
		network.SetFaults(seed, transport.Faults{Drop: 0.2, Duplicate: 0.2, Delay: time.Millisecond})
		for seq := uint64(1); seq <= 300; seq++ {
			x.Send("y", &wire.Envelope{Seq: seq})
		}
		network.SetFaults(seed, transport.Faults{})
		x.Send("y", &wire.Envelope{Seq: 1000})
		for n := 1; ; n++ {
			if got := b.await(t, n); got[len(got)-1] == 1000 {
				return got
			}
		}
	}
	first := run(7)
	if !slices.IsSorted(first) {
		t.Error("the order is lost")
	}
	distinct := slices.Compact(slices.Clone(first))
	if len(distinct) > 280 || len(distinct) < 200 || len(first)-len(distinct) < 30 {
		t.Errorf("%d arrived of 301, %d of them twice", len(distinct), len(first)-len(distinct))
	}
	if !slices.Equal(first, run(7)) || slices.Equal(first, run(8)) {
		t.Error("the faults are not their seed's")
	}
}

func TestMemoryPartition(t *testing.T) {
	network := transport.NewMemory()
	b := newBox()
	x := network.Listen("x", nil, transport.Handlers{})
	defer x.Close()
	y := network.Listen("y", nil, b.handlers(map[string]func(net.Conn, transport.Peer){"echo": echo}))
	defer y.Close()
	conn, err := x.Dial(t.Context(), "y", "echo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	network.Block("y", "x")
	x.Send("y", &wire.Envelope{Seq: 1})
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 5)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("through a partition: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := x.Dial(ctx, "y", "echo"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialling through a partition: %v", err)
	}
	network.Heal("x", "y")
	_ = conn.SetReadDeadline(time.Time{})
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("after it: %q, %v", got, err)
	}
	x.Send("y", &wire.Envelope{Seq: 2})
	if got := b.await(t, 1); got[0] != 2 {
		t.Errorf("after it: %v", got)
	}
	network.Cut("x", "y")
	if _, err := conn.Read(got); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a cut connection: %v", err)
	}
	if _, err := x.Dial(t.Context(), "y", "none"); !errors.Is(err, transport.ErrRefused) {
		t.Errorf("an unknown protocol: %v", err)
	}
	if _, err := x.Dial(t.Context(), "z", "echo"); err == nil {
		t.Error("nobody listens at z")
	}
}

func echo(c net.Conn, _ transport.Peer) {
	defer func() { _ = c.Close() }()
	_, _ = io.Copy(c, c)
}

// TestMemoryConn: a stream meets all requirements of a net.Conn.
func TestMemoryConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		network := transport.NewMemory()
		there := make(chan net.Conn, 1)
		x := network.Listen("x", nil, transport.Handlers{})
		y := network.Listen("y", nil, transport.Handlers{Streams: map[string]func(net.Conn, transport.Peer){
			"pipe": func(c net.Conn, _ transport.Peer) { there <- c },
		}})
		here, err := x.Dial(t.Context(), "y", "pipe")
		if err != nil {
			return nil, nil, nil, err
		}
		other := <-there
		return here, other, func() {
			_ = here.Close()
			_ = other.Close()
			x.Close()
			y.Close()
		}, nil
	})
}

// A stream that breaks while its ends are parted ends when they no longer are.
func TestMemoryCutWhileParted(t *testing.T) {
	network := transport.NewMemory()
	x := network.Listen("x", nil, transport.Handlers{})
	defer x.Close()
	y := network.Listen("y", nil, transport.Handlers{Streams: map[string]func(net.Conn, transport.Peer){"echo": echo}})
	defer y.Close()
	conn, err := x.Dial(t.Context(), "y", "echo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	network.Block("x", "y")
	network.Cut("x", "y")
	network.Heal("x", "y")
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it ends with %v", err)
	}
}
