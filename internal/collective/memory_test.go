package collective_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/collective"
)

// network carries messages in memory: late, in any order, a little at a time, with late acknowledgements.
type network struct {
	mu      sync.Mutex
	changed sync.Cond
	ends    []*end
	delay   time.Duration // at most
	acks    chan struct{} // until it is closed, nothing is acknowledged, nor freed before; nil: what is here is
	lefts   chan struct{} // with acks: until it is closed, nothing has left
	loans   int           // kept, and not returned
	lent    int           // so far
}

// loan is a payload that a carrier lends. What is read after it was returned is not what was sent.
type loan struct {
	net    *network
	memory []byte
	state  int // 0: offered, 1: kept, 2: returned, or never kept
}

func (l *loan) Keep() []byte {
	l.change(0, 1)
	return l.memory
}

func (l *loan) Return() {
	for i := range l.memory {
		l.memory[i] = 0xa5
	}
	l.change(1, 2)
}

// change panics where the state is another one than the loan's rules allow.
func (l *loan) change(from, to int) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.state != from {
		panic(fmt.Sprintf("a loan goes from state %d to %d, not from %d", l.state, to, from))
	}
	l.state = to
	if to == 1 {
		l.net.loans++
		l.net.lent++
	} else {
		l.net.loans--
	}
}

// end is a member's carrier.
type end struct {
	net       *network
	rank      int
	receiver  collective.Receiver
	closed    bool
	dead      bool // a process that is gone says nothing any more
	out, busy int  // messages whose done function has to be called; that use the member's memory
}

var errCut = errors.New("the carrier is closed")

func newNetwork(n int, delay time.Duration) *network {
	net := &network{delay: delay}
	net.changed.L = &net.mu
	for rank := range n {
		net.ends = append(net.ends, &end{net: net, rank: rank})
	}
	return net
}

func (n *network) wait() {
	if n.delay > 0 {
		time.Sleep(rand.N(n.delay))
	}
}

func (e *end) Receive(r collective.Receiver) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.receiver = r
	e.net.changed.Broadcast()
}

func (e *end) Frees(int, int) bool { return e.net.acks == nil && rand.IntN(2) == 0 }

func (e *end) Send(to int, header []byte, payload [][]byte, left func(free bool), done func(error)) {
	n := e.net
	header = append([]byte(nil), header...)
	n.mu.Lock()
	if e.closed {
		n.mu.Unlock()
		done(errCut)
		return
	}
	e.out++
	n.mu.Unlock()
	free := left != nil && n.acks == nil && rand.IntN(2) == 0
	if free {
		var own [][]byte
		for _, b := range payload {
			own = append(own, bytes.Clone(b))
		}
		payload = own
	}
	says := left != nil && (free || n.acks != nil || rand.IntN(2) == 0)
	go func() { // ends with the delivery, or when an end is closed
		n.wait()
		if says && n.lefts == nil {
			left(free)
		}
		err := e.deliver(n.ends[to], header, payload)
		if n.lefts != nil {
			<-n.lefts
			if says {
				left(free)
			}
		}
		n.wait()
		if n.acks != nil {
			<-n.acks
		}
		done(err)
		n.mu.Lock()
		e.out--
		n.changed.Broadcast()
		n.mu.Unlock()
	}()
}

func (e *end) deliver(to *end, header []byte, payload [][]byte) error {
	n := e.net
	n.wait()
	n.mu.Lock()
	for to.receiver == nil && !e.closed && !to.closed {
		n.changed.Wait()
	}
	if e.closed {
		n.mu.Unlock()
		return errCut
	}
	if to.closed {
		n.mu.Unlock()
		return nil // thrown away
	}
	to.busy++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		to.busy--
		n.changed.Broadcast()
		n.mu.Unlock()
	}()
	lens := make([]int, len(payload))
	for i, b := range payload {
		lens[i] = len(b)
	}
	var offer collective.Loan // nil, or a loan
	var l *loan
	if rand.IntN(2) == 0 {
		l = &loan{net: n, memory: bytes.Join(payload, nil)}
		offer = l
	}
	parts, done, err := to.receiver.Take(e.rank, header, lens, offer)
	if err != nil {
		return nil
	}
	if l != nil {
		n.mu.Lock()
		kept := l.state != 0
		if !kept {
			l.state = 2
		}
		n.mu.Unlock()
		if kept {
			n.wait()
			n.mu.Lock()
			closed := to.closed
			n.mu.Unlock()
			if closed {
				done(errCut)
			} else {
				done(nil)
			}
			return nil
		}
	}
	for i, b := range payload {
		if len(parts[i]) != len(b) {
			panic("memory of another length")
		}
		half := len(b) / 2
		copy(parts[i][:half], b[:half])
		n.wait()
		copy(parts[i][half:], b[half:])
	}
	done(nil)
	return nil
}

func (e *end) Tell(to int, note []byte) {
	n := e.net
	note = append([]byte(nil), note...)
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.ends[to]
	if e.dead || other.closed || other.receiver == nil {
		return
	}
	other.busy++
	go func() { // ends with the note
		n.wait()
		other.receiver.Told(e.rank, note)
		n.mu.Lock()
		other.busy--
		n.changed.Broadcast()
		n.mu.Unlock()
	}()
}

func (e *end) Close() {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	e.closed = true
	n.changed.Broadcast()
	for e.out > 0 || e.busy > 0 {
		n.changed.Wait()
	}
}

// kill ends a member as the end of its process would: the others hear of it from their carriers.
func (n *network) kill(rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[rank].dead = true
	for _, e := range n.ends {
		if e.rank == rank || e.closed || e.receiver == nil {
			continue
		}
		e.busy++
		go func() { // ends with the news
			n.wait()
			e.receiver.Gone(rank, errors.New("killed"))
			n.mu.Lock()
			e.busy--
			n.changed.Broadcast()
			n.mu.Unlock()
		}()
	}
}
