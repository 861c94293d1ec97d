package lane

import "testing"

// TestLeft: a message counts as sent when the socket has it, whatever the receiver does, and says that its memory stays in use.
func TestLeft(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	defer w.close()
	a, b := w.node("a", Config{NoSharedMemory: true}), w.node("b", Config{})
	goOn := make(chan struct{})
	taken := make(chan arrival, 1)
	take := collect(taken)
	b.Open(idOf("g"), func(from ID, header []byte, lens []int) ([][]byte, func(error), error) {
		<-goOn
		return take(from, header, lens)
	})
	g := a.Open(idOf("g"), collect(taken))
	a.SetPeer(idOf("b"), "b")
	left, done := make(chan bool, 2), make(chan error, 1)
	g.SendLeaving(idOf("b"), []byte("header"), [][]byte{make([]byte, 100)}, func(free bool) { left <- free }, func(err error) { done <- err })
	if free := wait(t, left); free {
		t.Error("the memory is free before the receiver has what lies there, and it isn't copied")
	}
	close(goOn)
	if err := wait(t, done); err != nil {
		t.Error(err)
	}
	wait(t, taken)
	if len(left) > 0 {
		t.Error("it left twice")
	}
}
