package collective

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Over makes a member's end of a group whose members are in several processes. It takes ownership
// of the carrier. Each member sends its contribution to every slice of a result to the member that
// reduces it, which sends the slice to all. That is as much data as a ring sends, in two latencies
// instead of 2(n−1). Small tensors are sent whole to all, in one latency.
func Over(name string, rank, size int, c Carrier) *Group {
	return over(name, rank, size, c, measured)
}

func over(name string, rank, size int, c Carrier, z sizes) *Group {
	g := &Group{name: name, rank: rank, size: size, way: alone{}}
	if size == 1 {
		c.Close()
		return g
	}
	x := &exchange{name: name, rank: rank, size: size, carrier: c, sizes: z, base: 1, next: 1, left: make([]*departure, size),
		undelivered: make(map[uint64]int), ended: make(chan struct{})}
	x.work.L, x.flushed.L = &x.mu, &x.mu
	g.way = x
	c.Receive(x)
	go x.serve() // ends after a failure, or with leave
	return g
}

// exchange is one member of a group that uses a carrier.
type exchange struct {
	name       string
	rank, size int
	carrier    Carrier
	sizes      sizes
	buffers    buffers
	ended      chan struct{} // serve has ended, and with it all that the member had begun

	mu      sync.Mutex
	work    sync.Cond
	flushed sync.Cond
	ops     []*op  // from base on: begun here, or heard of
	base    uint64 // the oldest that isn't complete here
	next    uint64 // of the next collective here
	tasks   []task
	err     error // why the group is over
	quiet   bool  // the others know it already
	left    []*departure
	leaving bool
	parting []byte // what the others are told when the member leaves
	// activating: a call of activate is under way.
	activating bool
	past       [64]Signature // of the last complete collectives, by number
	// undelivered counts messages that are on their way, by collective, which may be complete.
	undelivered map[uint64]int
}

// departure is what a member that has left said.
type departure struct {
	brought uint64 // everything below this number
	cause   error
}

// task is work that is done without the lock: a piece to reduce, or (-1) what a member gives to itself.
type task struct {
	op    *op
	piece int
}

// due is what follows from a change, and is done without the lock.
type due struct {
	sends []sending
	calls []func()
	works bool // whoever does it has time for tasks, which are left to serve otherwise
	tasks []task
}

type sending struct {
	to      int
	header  []byte
	payload [][]byte
	left    func(free bool) // nil: nothing follows from it
	done    func(error)
}

// unlock does what is due without the lock.
func (x *exchange) unlock(d *due) {
	x.mu.Unlock()
	for _, s := range d.sends {
		x.carrier.Send(s.to, s.header, s.payload, s.left, s.done)
	}
	for _, f := range d.calls {
		f()
	}
	for _, t := range d.tasks {
		s := scratches.Get().(*scratch)
		x.perform(t, s)
		scratches.Put(s)
	}
}

// perform does a task, and what follows from it.
func (x *exchange) perform(t task, s *scratch) {
	t.op.do(t.piece, s)
	d := due{works: true}
	x.mu.Lock()
	if x.err == nil {
		t.op.did(t.piece, &d)
	}
	x.unlock(&d)
}

// drop gives back the memory of a message that has been used, or never will be.
func (x *exchange) drop(in *incoming) {
	switch {
	case in == nil:
	case in.loan != nil:
		in.loan.Return()
	default:
		x.buffers.put(in.buffer)
	}
}

func (x *exchange) begin(c call) {
	var d due
	x.mu.Lock()
	if err := x.refusal(c); err != nil {
		x.mu.Unlock()
		c.done(err)
		return
	}
	o := x.at(x.next)
	x.next++
	o.call, o.begun = c, true
	x.agree(o, x.rank, c.sig)
	x.activate(&d)
	x.unlock(&d)
}

// refusal says why the next collective can't begin.
func (x *exchange) refusal(c call) error {
	if x.leaving {
		return fmt.Errorf("group %s, %v: %w", x.name, c.sig, ErrClosed)
	}
	if x.err != nil {
		return x.err
	}
	if n := x.next - x.base; n >= LimitPending {
		return fmt.Errorf("group %s, %v: %w: the limit is %d", x.name, c.sig, ErrFull, n)
	}
	for rank, l := range x.left {
		if l != nil && x.next >= l.brought {
			x.fail(leftError(x.name, rank, l.cause))
			return x.err
		}
	}
	return nil
}

// at is the collective of a number that isn't below base.
func (x *exchange) at(seq uint64) *op {
	for x.base+uint64(len(x.ops)) <= seq {
		x.ops = append(x.ops, newOp(x, x.base+uint64(len(x.ops))))
	}
	return x.ops[seq-x.base]
}

// agree compares what a member brings with what is known of the others.
func (x *exchange) agree(o *op, rank int, sig Signature) {
	if o.heard[rank] {
		return
	}
	o.heard[rank] = true
	switch {
	case o.first < 0:
		o.first, o.sig = rank, sig
	case o.sig != sig:
		// The member itself is named if it has begun: it is the one that reads this.
		other, has := o.first, o.sig
		if o.begun && rank != x.rank {
			other, has = x.rank, o.call.sig
		}
		x.fail(mismatch(x.name, o.seq, rank, sig, other, has))
	}
}

// activate begins what has been started and uses no tensor of an earlier collective that isn't complete.
func (x *exchange) activate(d *due) {
	if x.activating {
		return // the loop below looks again
	}
	x.activating = true
	for x.err == nil {
		o := x.waiting()
		if o == nil {
			break
		}
		o.activate(d)
	}
	x.activating = false
}

// limitActive bounds the collectives for which data may be on its way: the others hold as much for each
// before they begin it themselves.
const limitActive = 32

// waiting is the first that may become active. None overtakes another.
func (x *exchange) waiting() *op {
	for i, o := range x.ops[:min(len(x.ops), limitActive)] {
		if !o.begun {
			return nil
		}
		if o.active {
			continue
		}
		for _, earlier := range x.ops[:i] {
			if !earlier.complete && earlier.conflicts(o) {
				return nil
			}
		}
		return o
	}
	return nil
}

// finish takes complete collectives from the list.
func (x *exchange) finish(o *op, d *due) {
	o.complete = true
	done := o.call.done
	d.calls = append(d.calls, func() { done(nil) })
	o.call.done = nil
	for len(x.ops) > 0 && x.ops[0].complete {
		x.past[x.base%uint64(len(x.past))] = x.ops[0].sig
		x.ops[0] = nil
		x.ops = x.ops[1:]
		x.base++
	}
	x.activate(d)
}

// fail ends the group. mu is held; serve does the rest.
func (x *exchange) fail(err error) {
	if x.err == nil {
		x.err = err
		x.work.Signal()
		x.flushed.Broadcast()
	}
}

func (x *exchange) Take(from int, header []byte, lens []int, loan Loan) ([][]byte, func(error), error) {
	m, err := decodeMessage(header)
	var d due
	x.mu.Lock()
	defer func() { x.unlock(&d) }()
	switch {
	case x.err != nil:
		return nil, nil, x.err
	case from < 0 || from >= x.size || from == x.rank:
		return nil, nil, fmt.Errorf("%w, from rank %d", errMessage, from)
	case err == nil && m.seq < x.base:
		if m.phase == ready {
			return nil, func(error) {}, nil // it came later than what it was to bring about
		}
		if had := x.past[m.seq%uint64(len(x.past))]; x.base-m.seq <= uint64(len(x.past)) && had != m.sig {
			x.fail(mismatch(x.name, m.seq, from, m.sig, x.rank, had))
			return nil, nil, x.err
		}
		err = fmt.Errorf("%w: collective %d is complete", errMessage, m.seq)
	case err == nil && m.seq >= x.base+2*LimitPending:
		err = fmt.Errorf("%w: collective %d, but %d is the oldest incomplete one here", errMessage, m.seq, x.base)
	}
	if err != nil {
		x.fail(fmt.Errorf("group %s: rank %d: %w", x.name, from, err))
		return nil, nil, x.err
	}
	o := x.at(m.seq)
	x.agree(o, from, m.sig)
	if x.err != nil {
		return nil, nil, x.err
	}
	if m.phase == ready {
		if len(lens) > 0 {
			x.fail(fmt.Errorf("group %s: rank %d: %w: a ready message has %d bytes", x.name, from, errMessage, lens[0]))
			return nil, nil, x.err
		}
		return nil, func(err error) { x.arrived(o, from, m, nil, err) }, nil
	}
	in, err := o.take(from, m, lens, loan)
	if err != nil {
		x.fail(fmt.Errorf("group %s, collective %d: rank %d: %w", x.name, m.seq, from, err))
		return nil, nil, x.err
	}
	return in.parts, func(err error) { x.arrived(o, from, m, in, err) }, nil
}

// arrived is called when a message is here as a whole, or never will be.
func (x *exchange) arrived(o *op, from int, m message, in *incoming, err error) {
	d := due{works: true}
	x.mu.Lock()
	defer func() { x.unlock(&d) }()
	switch {
	case x.err != nil:
		x.drop(in)
		return
	case err != nil:
		x.drop(in)
		x.fail(fmt.Errorf("group %s, collective %d: from rank %d: %w", x.name, m.seq, from, err))
		return
	}
	o.open[from] = true // it has begun, since it sends
	switch {
	case m.phase == ready:
		if o.active {
			o.pump(from, &d)
		}
		return
	case !o.active:
		o.early = append(o.early, early{from, m, in})
		return
	case in.early && !o.checkLate(early{from, m, in}):
		x.drop(in)
		return
	}
	o.process(from, m, in, &d)
}

// outbound is a message to a member that has not arrived.
type outbound struct {
	op    *op
	to    int
	m     message
	own   bool // of the group's own memory: what it was copied from is free
	begun bool // to be waited for: not what says that a member is ready
}

// departed is called when a message is on its way. A collective waits so long for what it has copied: a member
// that has its result computes again, and what it still had to send would be late.
func (x *exchange) departed(out *outbound, free bool) {
	if !free && !out.own {
		return
	}
	var d due
	x.mu.Lock()
	defer func() { x.unlock(&d) }()
	x.freed(out, &d)
}

// sent is called when a member has a message, or never will, which may be later than the collective's end.
func (x *exchange) sent(out *outbound, err error) {
	o := out.op
	var d due
	x.mu.Lock()
	defer func() { x.unlock(&d) }()
	if x.undelivered[o.seq]--; x.undelivered[o.seq] == 0 {
		delete(x.undelivered, o.seq)
		x.flushed.Broadcast()
	}
	if err != nil {
		x.fail(fmt.Errorf("group %s, collective %d: to rank %d: %w", x.name, o.seq, out.to, err))
	}
	x.freed(out, &d)
}

func (x *exchange) freed(out *outbound, d *due) {
	if !out.begun || x.err != nil {
		return
	}
	out.begun = false
	if out.m.phase == gives && !out.own {
		out.op.given(out.to, out.m.piece, d)
	}
	out.op.less(d)
}

func (x *exchange) Told(from int, note []byte) {
	if len(note) == 0 || from < 0 || from >= x.size || from == x.rank {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch note = cut(note); {
	case note[0] == noteFailed && len(note) > 2:
		kind := error(nil)
		switch note[1] {
		case noteMismatch:
			kind = ErrMismatch
		case noteGone:
			kind = ErrLeft
		}
		if x.err == nil {
			x.quiet = true
		}
		x.fail(&toldError{text: string(note[2:]), kind: kind})
	case note[0] == noteLeft && len(note) >= 9:
		l := &departure{brought: binary.LittleEndian.Uint64(note[1:])}
		if len(note) > 9 {
			l.cause = &toldError{text: string(note[9:])}
		}
		x.left[from] = l
		if x.next > l.brought { // something began that it takes no part in
			x.fail(leftError(x.name, from, l.cause))
		}
	}
}

func (x *exchange) Gone(from int, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from < 0 || from >= x.size || from == x.rank || x.left[from] != nil && x.base == x.next {
		return // it had said so, and nothing is under way
	}
	x.fail(leftError(x.name, from, cause))
}

// serve does the work that is too much for whoever brings a message, until the group is over. Then it gives back all
// tensors.
func (x *exchange) serve() {
	defer close(x.ended)
	var s scratch
	x.mu.Lock()
	for x.err == nil {
		if len(x.tasks) == 0 {
			x.work.Wait()
			continue
		}
		t := x.tasks[0]
		x.tasks[0] = task{}
		x.tasks = x.tasks[1:]
		x.mu.Unlock()
		x.perform(t, &s)
		x.mu.Lock()
	}
	err, note := x.err, failedNote(x.err)
	switch {
	case x.leaving:
		err, note = fmt.Errorf("group %s: %w", x.name, ErrClosed), x.parting
	case x.quiet:
		note = nil
	}
	x.mu.Unlock()
	if note != nil {
		x.tell(note)
	}
	x.carrier.Close()
	x.mu.Lock()
	ops := x.ops
	x.ops, x.tasks = nil, nil
	x.base = x.next
	x.mu.Unlock()
	for _, o := range ops {
		o.release()
		if o.call.done != nil {
			o.call.done(err)
		}
	}
}

func (x *exchange) tell(note []byte) {
	for peer := range x.size {
		if peer != x.rank {
			x.carrier.Tell(peer, note)
		}
	}
}

// flushTimeout bounds how long leave waits until the others have what they are owed.
const flushTimeout = 3 * time.Second

func (x *exchange) leave(cause error, silent bool) {
	x.mu.Lock()
	again := x.leaving
	x.leaving = true
	if !again && x.err == nil {
		if !silent {
			if x.base == x.next {
				x.flush()
			}
			brought := x.base
			for seq := range x.undelivered {
				brought = min(brought, seq)
			}
			x.parting = leftNote(brought, cause)
		}
		x.fail(ErrClosed)
	}
	x.mu.Unlock()
	<-x.ended
}

// flush waits until what complete collectives have sent has arrived.
func (x *exchange) flush() {
	late := false
	timer := time.AfterFunc(flushTimeout, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		late = true
		x.flushed.Broadcast()
	})
	defer timer.Stop()
	for len(x.undelivered) > 0 && x.err == nil && !late {
		x.flushed.Wait()
	}
}

func (x *exchange) status() (Status, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.ops {
		if o.complete || !o.begun {
			continue
		}
		st := Status{Group: x.name, Collective: o.seq, What: o.call.sig.String(), Since: o.call.since}
		if o.active {
			st.Missing = o.missing()
		}
		return st, true
	}
	return Status{}, false
}
