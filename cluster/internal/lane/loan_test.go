package lane

import (
	"bytes"
	"sync"
	"testing"
)

// TestLoans: a limited number of payloads stay in a shared region; others arrive as copies with the same bytes. Returned
// payloads make room again.
func TestLoans(t *testing.T) {
	w := newWorld(t, tcpLink(t))
	a, b := w.node("a", Config{Streams: 1}), w.node("b", Config{Streams: 1})
	a.SetPeer(idOf("b"), "b")
	const size = 100_000
	var mu sync.Mutex // the nodes know of each other by their connection alone
	var loans []*Loan
	var memories [][]byte
	kept := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(loans)
	}
	came := make(chan arrival, 1)
	b.OpenLoans(ID{1}, func(_ ID, header []byte, lens []int, loan *Loan) ([][]byte, func(error), error) {
		m := arrival{header: bytes.Clone(header)}
		var parts [][]byte
		if loan != nil {
			m.parts = [][]byte{loan.Keep()}
			mu.Lock()
			loans, memories = append(loans, loan), append(memories, m.parts[0])
			mu.Unlock()
		} else {
			parts = [][]byte{make([]byte, lens[0])}
			m.parts = parts
		}
		return parts, func(err error) {
			m.err = err
			came <- m
		}, nil
	})
	g := a.Open(ID{1}, nil)
	number := byte(0)
	send := func() {
		number++
		acked := make(chan error, 1)
		g.Send(idOf("b"), nil, [][]byte{bytes.Repeat([]byte{number}, size)}, func(err error) { acked <- err })
		m := wait(t, came)
		if err := wait(t, acked); err != nil || m.err != nil || !bytes.Equal(m.parts[0], bytes.Repeat([]byte{number}, size)) {
			t.Fatalf("message %d: %v, %v, or other bytes", number, err, m.err)
		}
	}
	send()
	if kept() == 0 {
		w.close()
		t.Skip("no memory is shared on this system")
	}
	for range limitLoans - 1 {
		send()
	}
	for range 2 * sharedSlotsOf(b) {
		send()
	}
	if n := kept(); n != limitLoans {
		t.Fatalf("%d payloads are kept, at most %d", n, limitLoans)
	}
	mu.Lock()
	loans[0].Return()
	loans, memories = loans[1:], memories[1:]
	mu.Unlock()
	send()
	if n := kept(); n != limitLoans {
		t.Errorf("%d payloads are kept after one was returned", n)
	}
	first := bytes.Clone(memories[0])
	g.Close()
	w.close()
	for i, loan := range loans {
		if i == 0 && !bytes.Equal(memories[0], first) {
			t.Error("a payload has changed when the nodes were closed")
		}
		loan.Return()
	}
}

// sharedSlotsOf is how many slots a region of a node has.
func sharedSlotsOf(n *Node) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.ins {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, s := range i.streams {
			if s != nil && s.region != nil {
				return s.region.slots()
			}
		}
	}
	return 0
}
