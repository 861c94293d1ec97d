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

// TestLostToMessages: what messages cost is what the threads compute less, and at most what the process and interrupts take of the cores
// beside computing.
func TestLostToMessages(t *testing.T) {
	alone := pace{rounds: 0.001, cpuNS: 1000} // a round takes 1 µs of one thread
	for _, c := range []struct {
		name              string
		took, rounds, cpu float64 // ns, and rounds
		threads           int
		want              float64
	}{
		{"processors to spare", 1e6, 1000, 1.4e6, 1, 0},
		{"a fifth of the only processor", 1e6, 800, 1e6, 1, 0.2e6},
		{"other programs take half, messages a fifth of the rest", 1e6, 400, 0.5e6, 1, 0.1e6},
		{"other programs take most, messages nothing", 1e6, 100, 0.1e6, 1, 0},
		{"computing was faster than alone", 1e6, 1100, 1.2e6, 1, 0},
	} {
		if got := alone.lostNS(c.took, c.rounds, c.cpu, c.threads); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s: %v ns, want %v", c.name, got, c.want)
		}
	}
	two := pace{rounds: 0.002, cpuNS: 1000} // each thread has a processor, and carrying takes 0.4 of 2 ms
	if got := two.lostNS(1e6, 1600, 2e6, 2); math.Abs(got-0.2e6) > 1e-3 {
		t.Errorf("two threads: %v ns for each, want 0.2e6", got)
	}
	if got := (pace{rounds: 0.001}).lostNS(1e6, 800, 0, 1); math.Abs(got-0.2e6) > 1e-3 {
		t.Errorf("where the time of the cores is not known: %v ns, want 0.2e6", got)
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
