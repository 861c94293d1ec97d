package cluster

import (
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// probed returns two processes that measure each other.
func probed(t *testing.T) (a, b transport.Transport, of *[2]prober) {
	t.Helper()
	network, of := transport.NewMemory(), new([2]prober)
	open := func(name string, p *prober) transport.Transport {
		m := network.Listen(name, nil, transport.Handlers{Streams: map[string]func(net.Conn, transport.Peer){probeProtocol: p.serve}})
		t.Cleanup(m.Close)
		return m
	}
	return open("a", &of[0]), open("b", &of[1]), of
}

func TestMeasureLink(t *testing.T) {
	a, _, of := probed(t)
	l := measureLink(t.Context(), a, &wire.Peer{Name: "b", Address: "b"})
	if l.GetError() != "" || l.GetTo() != "b" || !(l.GetBytesPerS() > 0) || !(l.GetLatencyMs() >= 0) {
		t.Errorf("the link is %v", l)
	}
	if n := of[1].received.Load(); n < 2*probeBytes || n%probeBytes != 0 {
		t.Errorf("%d bytes came", n)
	}
	if l := measureLink(t.Context(), a, &wire.Peer{Name: "c", Address: "c"}); l.GetError() == "" {
		t.Errorf("the link to nobody is %v", l)
	}
}

// TestMeasureCarry: two processes that send to each other while they compute measure a finite time per byte that is not
// negative.
func TestMeasureCarry(t *testing.T) {
	a, b, of := probed(t)
	var both sync.WaitGroup
	for i, from := range []transport.Transport{a, b} {
		to := []string{"b", "a"}[i]
		both.Go(func() {
			ns, err := measureCarry(t.Context(), from, &wire.Peer{Name: to, Address: to}, 8, &of[i].received)
			if err != nil || !(ns >= 0) || math.IsInf(ns, 0) {
				t.Errorf("to %s: %v ns a byte, %v", to, ns, err)
			}
			if n := of[1-i].received.Load(); n < carryBlockBytes {
				t.Errorf("%d bytes came to %s", n, to)
			}
		})
	}
	both.Wait()
	if _, err := measureCarry(t.Context(), a, &wire.Peer{Name: "c", Address: "c"}, 1, new(atomic.Int64)); err == nil {
		t.Error("measured with nobody")
	}
}

// TestCompute: the background computation runs until it is stopped.
func TestCompute(t *testing.T) {
	c := compute(2)
	for deadline := time.Now().Add(time.Minute); c.rounds[0].rounds.Load() == 0 || c.rounds[1].rounds.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("nothing was computed")
		}
		time.Sleep(time.Millisecond)
	}
	c.end()
	if done := c.done(); done < 2 || done != c.done() {
		t.Errorf("%d rounds", done)
	}
}
