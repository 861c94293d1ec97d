package transport_test

import (
	"testing"
	"time"
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
