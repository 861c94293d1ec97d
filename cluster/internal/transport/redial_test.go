package transport_test

import (
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// TestRedial: after a connection was dropped, messages go over a new one.
func TestRedial(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, nodeConfig{}), startNode(t, nodeConfig{})
	a.do(command{Op: "redial", To: b.Address}) // where there is none it does nothing
	seq := uint64(0)
	for range 5 {
		before := b.do(command{Op: "report"}).Received["a"]
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // what is under way may be lost
			seq++
			a.do(command{Op: "send", To: b.Address, Sender: "a", From: seq, N: 1})
			got := b.do(command{Op: "report"}).Received["a"]
			if got != nil && (before == nil || got.Count > before.Count) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("nothing arrives any more")
			}
		}
		a.do(command{Op: "redial", To: b.Address})
	}
}

// TestLeft: a process that has left while it was dialed is not dialed forever.
func TestLeft(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, nodeConfig{}), startNode(t, nodeConfig{})
	a.do(command{Op: "send", To: b.Address, Sender: "a", From: 1, N: 1})
	b.awaitCount("a", 1)
	b.kill()
	a.await("the end of the connection", func(r answer) bool { return r.Dialed == 0 })
	a.do(command{Op: "send", To: b.Address, Sender: "a", From: 2, N: 1})
	a.await("a dial", func(r answer) bool { return r.Dialed == 1 })
	a.do(command{Op: "left", To: b.Address})
	time.Sleep(2*transport.LimitConnectTime + 3*time.Second) // for this dial, and for the one that follows it
	if n := a.do(command{Op: "report"}).Dialed; n != 0 {
		t.Errorf("%d addresses are dialed, of no process", n)
	}
}
