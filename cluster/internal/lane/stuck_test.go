package lane

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// stuckFor is for how long messages wait for a node's only peer.
func stuckFor(n *Node) time.Duration {
	for _, p := range n.Stats().Peers {
		return p.Stuck
	}
	return 0
}

// TestStuck: an unreachable peer counts as stuck once a message waits for it, until it is reached. A peer that is reached but
// reads nothing is not stuck.
func TestStuck(t *testing.T) {
	for name, link := range map[string]func() (net.Conn, net.Conn){"TCP": tcpLink(t), "a pipe": pipeLink} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, link)
			defer w.close()
			a, b := w.node("a", Config{Streams: 1, NoSharedMemory: true}), w.node("b", Config{})
			var there atomic.Bool
			a.config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if there.Load() {
					return w.dial(ctx, address)
				}
				return w.dial(ctx, "nobody")
			}
			begun, goOn := make(chan struct{}), make(chan struct{})
			taken := make(chan arrival, 1)
			take := collect(taken)
			b.Open(idOf("g"), func(from ID, header []byte, lens []int) ([][]byte, func(error), error) {
				close(begun)
				<-goOn
				return take(from, header, lens)
			})
			g := a.Open(idOf("g"), collect(taken))
			a.SetPeer(idOf("b"), "b")
			if s := stuckFor(a); s != 0 {
				t.Errorf("stuck for %v, and nothing waits", s)
			}
			done := make(chan error, 1)
			g.Send(idOf("b"), []byte("header"), [][]byte{make([]byte, 100)}, func(err error) { done <- err })
			for end := time.Now().Add(patience); stuckFor(a) < 50*time.Millisecond; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("what waits for a peer that can't be dialled is not stuck")
				}
			}
			there.Store(true)
			wait(t, begun) // it was sent, and the peer's process takes its time
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				before := stuckFor(a)
				time.Sleep(100 * time.Millisecond)
				if stuckFor(a) < before+100*time.Millisecond { // it does not go on growing
					break
				}
				if time.Now().After(end) {
					t.Fatal("a peer whose system is there counts as stuck")
				}
			}
			close(goOn)
			if err := wait(t, done); err != nil {
				t.Error(err)
			}
			wait(t, taken)
			if s := stuckFor(a); s != 0 {
				t.Errorf("stuck for %v behind the acknowledgement", s)
			}
		})
	}
}
