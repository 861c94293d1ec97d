package lane

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Take is called once for a message when its header has arrived, before its payload is read. It returns memory for the
// payload, with exactly the lengths lens, and a function that is called once with the outcome: nil when the whole payload
// has arrived, an error when it never will. If Take returns an error, the payload is discarded and acknowledged.
// header and lens are valid only during the call. Neither take nor done may block or close the group.
type Take func(from ID, header []byte, lens []int) (parts [][]byte, done func(error), err error)

// Group is a set of messages that are closed together, such as those of one attempt at a run.
type Group struct {
	node     *Node
	id       ID
	take     TakePlace
	takeLoan TakeLoan // instead of take, unless it is nil

	closed atomic.Bool
	mu     sync.Mutex
	idle   sync.Cond
	users  int // messages whose done function is still to be called, and running calls of take
}

// Open opens a group: the node discards messages of groups that are not open. Open each group once, before any process
// sends to it.
func (n *Node) Open(group ID, take Take) *Group {
	return n.OpenPlaces(group, func(from ID, header []byte, lens []int) (Place, func(error), error) {
		parts, done, err := take(from, header, lens)
		return Place{Parts: parts}, done, err
	})
}

func (n *Node) open(g *Group) *Group {
	g.node = n
	g.idle.L = &g.mu
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		g.closed.Store(true)
		return g
	}
	if n.groups[g.id] != nil {
		n.log.warn("group opened twice; messages go to the new one", "group", g.id)
	}
	n.groups[g.id] = g
	return g
}

func (n *Node) group(id ID) *Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.groups[id]
}

// use counts a user of the group's memory, unless the group is closed.
func (g *Group) use() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return false
	}
	g.users++
	return true
}

func (g *Group) unuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 {
		g.idle.Broadcast()
	}
}

// Send queues a message and never blocks. It copies the header but not the parts, which must stay unchanged until done is
// called. done is called exactly once: with nil when the receiver has acknowledged the message, otherwise with the reason.
// done may be called before Send returns, and must not block. Messages to a peer whose address isn't known yet wait for
// SetPeer.
func (g *Group) Send(to ID, header []byte, parts [][]byte, done func(error)) {
	g.post(to, header, parts, nil, nil, done)
}

// SendLeaving is Send with a second function: left is called, at most once and before done, when the message is written
// and takes no more of this process's time. free says whether the caller may reuse the memory of the parts, because they
// were copied to memory shared with the receiver; otherwise they may have to be sent again. If left isn't called, done
// implies both.
func (g *Group) SendLeaving(to ID, header []byte, parts [][]byte, left func(free bool), done func(error)) {
	g.post(to, header, parts, nil, left, done)
}

// Frees reports whether the memory of parts with that many bytes in total is likely to be free early (see SendLeaving).
func (g *Group) Frees(to ID, bytes int) bool {
	if bytes < sharedLeaving || bytes > LimitPiece {
		return false
	}
	o, err := g.node.out(to)
	return err == nil && o.shares.Load() > 0
}

// post sends parts, or pieces if they are not nil.
func (g *Group) post(to ID, header []byte, parts [][]byte, pieces Pieces, left func(free bool), done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	total, err := checkMessage(header, parts)
	if pieces != nil && err == nil {
		total, err = checkPieces(header, pieces)
	}
	if err != nil {
		done(err)
		return
	}
	if !g.use() {
		done(ErrClosed)
		return
	}
	o, err := g.node.out(to)
	if err == nil {
		err = o.send(g, header, parts, pieces, total, left, done)
	}
	if err != nil {
		done(err)
		g.unuse()
	}
}

func checkMessage(header []byte, parts [][]byte) (total int, err error) {
	if len(header) > LimitHeaderBytes {
		return 0, fmt.Errorf("%w: the header has %d bytes; the limit is %d", ErrTooLarge, len(header), LimitHeaderBytes)
	}
	if len(parts) > LimitParts {
		return 0, fmt.Errorf("%w: %d parts; the limit is %d", ErrTooLarge, len(parts), LimitParts)
	}
	for _, part := range parts {
		if total += len(part); total > LimitPayloadBytes {
			return 0, fmt.Errorf("%w: the payload has more than %d bytes, the limit", ErrTooLarge, int64(LimitPayloadBytes))
		}
	}
	return total, nil
}

func checkPieces(header []byte, pieces Pieces) (total int, err error) {
	if n := len(header) + lenBytes; n > limitStripedMeta {
		return 0, fmt.Errorf("%w: the header of a payload in pieces has %d bytes; the limit is %d", ErrTooLarge, len(header),
			limitStripedMeta-lenBytes)
	}
	if total = pieces.Len(); total > LimitPayloadBytes {
		return 0, fmt.Errorf("%w: the payload has %d bytes; the limit is %d", ErrTooLarge, total, int64(LimitPayloadBytes))
	}
	return total, nil
}

// Close closes the group. It calls the done functions of queued and partly received messages with ErrClosed. When Close
// returns, no goroutine of the lane uses memory of the group. It must not be called from take or done.
func (g *Group) Close() {
	n := g.node
	g.mu.Lock()
	g.closed.Store(true)
	g.mu.Unlock()

	n.mu.Lock()
	if n.groups[g.id] == g {
		delete(n.groups, g.id)
	}
	outs := make([]*out, 0, len(n.outs))
	for _, o := range n.outs {
		outs = append(outs, o)
	}
	ins := make([]*in, 0, len(n.ins))
	for _, i := range n.ins {
		ins = append(ins, i)
	}
	n.mu.Unlock()

	for _, o := range outs {
		o.withdraw(g)
	}
	for _, i := range ins {
		i.cancelGroup(g)
	}
	// Writes in progress end on their own, unless the peer doesn't read.
	grace := time.AfterFunc(closeGrace, func() {
		for _, o := range outs {
			o.interrupt(g)
		}
	})
	defer grace.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.users > 0 {
		g.idle.Wait()
	}
}

// outcome is a pending call of a done function: collected under a lock, and made outside it.
type outcome struct {
	done  func(error)
	err   error
	group *Group
}

func report(list []outcome) {
	for _, o := range list {
		o.done(o.err)
		o.group.unuse()
	}
	clear(list)
}
