package collective

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// op is one collective of an exchange. Its fields are guarded by the exchange's lock, but what a task uses.
type op struct {
	x   *exchange
	seq uint64

	sig   Signature // what the first member that was heard brings
	first int       // who that is; -1: nobody yet
	heard []bool
	open  []bool // members that have begun, as far as is known: they have memory for everything

	begun, active, complete bool
	call                    call
	plan                    *plan
	left                    int // what has to happen until it is complete

	early    []early // what came before it was active
	got      [numPhases]pieceSet
	stage    [][]*incoming // by piece and member: contributions that wait for the others'
	staged   []int         // by piece
	arrived  []int         // pieces by member
	expected []int

	out   []outgoing // by member
	acked pieceSet   // contributions whose memory may be written
	late  map[[2]int]*incoming
}

// early is a message that came before its collective was active.
type early struct {
	from int
	m    message
	in   *incoming
}

// incoming is where a message is read into.
type incoming struct {
	parts  [][]byte // to be read into; nil: there is a loan
	buffer []byte   // not its place
	loan   Loan     // the buffer is the carrier's; nil: the group's own
	lens   []int    // of the message's parts
	early  bool     // taken before they could be checked
}

// outgoing is what is to be sent to a member.
type outgoing struct {
	pieces []outPiece
	bytes  int // sent so far
}

type outPiece struct {
	phase phase
	piece int
	from  region
	run   int
}

// pieceSet has pieces of members.
type pieceSet map[[2]int]bool

func newOp(x *exchange, seq uint64) *op {
	return &op{x: x, seq: seq, first: -1, heard: make([]bool, x.size), open: make([]bool, x.size)}
}

// conflicts says whether a later collective has to wait for this one: it uses memory that this one writes, or writes
// memory that this one uses.
func (o *op) conflicts(later *op) bool {
	a, b := &o.call, &later.call
	if a.What == tensorops.Barrier || b.What == tensorops.Barrier {
		return false
	}
	return overlap(a.Dst, b.Dst) || overlap(a.Dst, b.Src) || overlap(a.Src, b.Dst) || overlap(a.Dst, b.Table) || overlap(a.Table, b.Dst)
}

func overlap(t, u tensorops.Tensor) bool {
	if !t.Valid() || !u.Valid() || t.Buffer() != u.Buffer() {
		return false
	}
	size, other := t.DType().Size(), u.DType().Size()
	return t.Offset()*size < (u.Offset()+u.Len())*other && u.Offset()*other < (t.Offset()+t.Len())*size
}

// activate sends what the member gives, and uses what has come already.
func (o *op) activate(d *due) {
	x := o.x
	o.active = true
	p := newPlan(o.call.CollectiveArgs, x.rank, x.size, x.sizes)
	o.plan = p
	o.out = make([]outgoing, x.size)
	o.arrived, o.expected = make([]int, x.size), make([]int, x.size)
	if o.acked == nil {
		o.acked, o.late = pieceSet{}, map[[2]int]*incoming{}
	}
	o.left = 1 // until all of this is done
	if p.reduces {
		n := x.sizes.pieces(p.takes)
		o.left += n
		o.stage, o.staged = make([][]*incoming, n), make([]int, n)
	}
	for peer := range x.size {
		expected := 0
		if p.givers[peer] {
			takes := p.takesFrom(peer)
			o.expected[peer] += x.sizes.pieces(takes)
			expected += takes
			if !p.reduces {
				o.left += x.sizes.pieces(takes)
			}
		}
		if p.from[peer] {
			n := x.sizes.pieces(p.slices[peer].length)
			o.expected[peer] += n
			o.left += n
			if !p.reduces { // else it is sent only when this member is known to have begun
				expected += p.slices[peer].length
			}
		}
		if o.expected[peer] > 0 && (p.give[peer] == nil || expected > o.eager()) {
			x.undelivered[o.seq]++
			out := &outbound{op: o, to: peer, m: o.message(ready, 0)}
			d.sends = append(d.sends, sending{to: peer, header: out.m.encode(), done: func(err error) { x.sent(out, err) }})
		}
	}
	// Piece by piece to all, beginning with the next rank, so that nobody is sent to by all at once.
	for piece, more := 0, true; more; piece++ {
		more = false
		for i := 1; i < x.size; i++ {
			peer := (x.rank + i) % x.size
			if give := p.give[peer]; give != nil && piece < x.sizes.pieces(give.length) {
				o.queue(peer, outPiece{gives, piece, *give, p.wireRun})
				more = true
			}
		}
	}
	if p.isReady {
		for piece := range x.sizes.pieces(p.slices[x.rank].length) {
			o.passOn(piece)
		}
	}
	o.pumpAll(d)
	if p.localDst != nil && p.localDst.length > 0 && (p.lengths != nil || &p.localDst.mem[0] != &p.localSrc.mem[0]) {
		o.left++
		o.schedule(-1, d, p.localDst.length)
	}
	for _, e := range o.early {
		if x.err == nil && o.checkLate(e) {
			o.process(e.from, e.m, e.in, d)
		} else {
			x.drop(e.in)
		}
	}
	o.early = nil
	o.less(d)
}

// eager is how many bytes are sent to a member before it is known to have begun: less where they then have a place
// of their own, to which they would have to be copied.
func (o *op) eager() int {
	if o.plan.reduces {
		return o.x.sizes.eager
	}
	return o.x.sizes.eager / 8
}

// checkLate checks the lengths of a message that was taken before they were known.
func (o *op) checkLate(e early) bool {
	if _, err := o.expects(e.from, e.m, e.in.lens); err != nil {
		o.x.fail(fmt.Errorf("group %s, collective %d: rank %d: %w", o.x.name, o.seq, e.from, err))
		return false
	}
	return true
}

func (o *op) message(ph phase, piece int) message {
	return message{phase: ph, seq: o.seq, piece: piece, sig: o.call.sig}
}

// less counts down; the last call completes the collective.
func (o *op) less(d *due) {
	if o.left--; o.left == 0 {
		o.x.finish(o, d)
	}
}

// expects checks a message of a phase with payload against the plan, and returns the bytes that it brings.
func (o *op) expects(from int, m message, lens []int) (region, error) {
	p, z := o.plan, o.x.sizes
	var length, run int
	var into region
	switch {
	case m.phase == gives && p.givers[from]:
		length, run = p.takesFrom(from), p.wireRun
		if p.into[from] != nil {
			into = *p.into[from]
		}
	case m.phase == results && p.from[from]:
		into = p.slices[from]
		length = into.length
	default:
		return into, fmt.Errorf("%w: it has nothing to send for %v", errMessage, o.call.sig)
	}
	lo, hi := z.bounds(m.piece, length)
	want := wireLens(lo, hi, run)
	if m.piece >= z.pieces(length) || len(want) != len(lens) {
		return into, fmt.Errorf("%w: piece %d has %d parts and %d bytes", errMessage, m.piece, len(lens), length)
	}
	for i := range want {
		if want[i] != lens[i] {
			return into, fmt.Errorf("%w: part %d of piece %d has %d bytes, want %d", errMessage, i, m.piece, lens[i], want[i])
		}
	}
	return into, nil
}

// take returns memory for a message: its place, if it may be written now.
func (o *op) take(from int, m message, lens []int, loan Loan) (*incoming, error) {
	total := 0
	for _, n := range lens {
		if total += n; total > o.x.sizes.piece {
			return nil, fmt.Errorf("%w: it has more than %d bytes", errMessage, o.x.sizes.piece)
		}
	}
	key := [2]int{from, m.piece}
	if o.got[m.phase] == nil {
		o.got[m.phase] = pieceSet{}
	}
	if o.got[m.phase][key] {
		return nil, fmt.Errorf("%w: piece %d arrived twice", errMessage, m.piece)
	}
	o.got[m.phase][key] = true
	if o.active {
		into, err := o.expects(from, m, lens)
		if err != nil {
			return nil, err
		}
		run, writable := 0, into.mem != nil
		if m.phase == gives {
			run = o.plan.wireRun
		} else if o.plan.give[from] != nil && o.plan.reduces {
			writable = o.acked[key] // else what lies there is still being sent
		}
		if writable && (!into.strided() || run > 0) {
			lo, hi := o.x.sizes.bounds(m.piece, into.length)
			return &incoming{parts: into.parts(lo, hi, run)}, nil
		}
	} else if held := o.held(from) + total; held > o.x.sizes.eager+o.x.sizes.piece {
		return nil, fmt.Errorf("%w: %d bytes were sent before they were requested; the limit is %d", errMessage, held, o.x.sizes.eager)
	}
	in := &incoming{early: !o.active}
	if in.early {
		in.lens = append(in.lens, lens...)
	}
	if loan != nil {
		in.loan, in.buffer = loan, loan.Keep()
		return in, nil
	}
	in.buffer = o.x.buffers.get(total)
	in.parts = divide(in.buffer, lens)
	return in, nil
}

// divide cuts memory into parts of the given lengths.
func divide(b []byte, lens []int) (parts [][]byte) {
	for _, n := range lens {
		parts = append(parts, b[:n:n])
		b = b[n:]
	}
	return parts
}

// held is how many bytes of a member's messages wait for the collective to begin.
func (o *op) held(from int) (bytes int) {
	for _, e := range o.early {
		if e.from == from {
			bytes += len(e.in.buffer)
		}
	}
	return bytes
}

// process uses a message that has come.
func (o *op) process(from int, m message, in *incoming, d *due) {
	x, p := o.x, o.plan
	o.arrived[from]++
	o.pump(from, d)
	if m.phase == gives && p.reduces {
		if o.stage[m.piece] == nil {
			o.stage[m.piece] = make([]*incoming, x.size)
		}
		o.stage[m.piece][from] = in
		o.staged[m.piece]++
		o.reduce(m.piece, d)
		return
	}
	into := p.into[from]
	if m.phase == results {
		into = &p.slices[from]
		if key := [2]int{from, m.piece}; p.reduces && in.buffer != nil && !o.acked[key] {
			o.late[key] = in
			return
		}
	}
	o.store(into, m.piece, in)
	if p.relays && m.phase == gives {
		o.passOn(m.piece)
		o.pumpAll(d)
	}
	o.less(d)
}

// store copies a message to its place, unless it is there.
func (o *op) store(into *region, piece int, in *incoming) {
	if in.buffer != nil {
		lo, hi := o.x.sizes.bounds(piece, into.length)
		into.unpack(in.buffer, lo, hi)
		o.x.drop(in)
	}
}

// reduce has a piece reduced when all contributions are here, and its place may be written.
func (o *op) reduce(piece int, d *due) {
	if o.staged[piece] < o.x.size-1 {
		return
	}
	for peer := range o.x.size {
		// Given as a whole, it may lie where the result goes.
		if o.plan.slices == nil && peer != o.x.rank && o.call.What == tensorops.AllReduce && !o.acked[[2]int{peer, piece}] {
			return
		}
	}
	lo, hi := o.x.sizes.bounds(piece, o.plan.takes)
	o.schedule(piece, d, (hi-lo)*o.x.size)
}

// given: the memory of a piece that a member was given may be written.
func (o *op) given(to, piece int, d *due) {
	if !o.plan.reduces {
		return
	}
	key := [2]int{to, piece}
	if o.acked[key] = true; o.plan.slices == nil {
		if o.call.What == tensorops.AllReduce {
			o.reduce(piece, d)
		}
		return
	}
	if in := o.late[key]; in != nil {
		delete(o.late, key)
		o.store(&o.plan.slices[to], piece, in)
		o.left-- // less follows, for what was given
	}
}

// inlineWork is how much is reduced or copied by whoever brings the last message.
const inlineWork = 512 << 10

// schedule has a task done: at once if it is little.
func (o *op) schedule(piece int, d *due, bytes int) {
	x := o.x
	if bytes <= inlineWork {
		s := scratches.Get().(*scratch)
		o.do(piece, s)
		scratches.Put(s)
		o.did(piece, d)
		return
	}
	if d.works {
		d.tasks = append(d.tasks, task{o, piece})
		return
	}
	x.tasks = append(x.tasks, task{o, piece})
	x.work.Signal()
}

// do reduces a piece, or copies what the member gives to itself. It needs no lock: nobody else uses that memory.
func (o *op) do(piece int, s *scratch) {
	p := o.plan
	if piece < 0 {
		p.copyLocal()
		return
	}
	lo, hi := o.x.sizes.bounds(piece, p.takes)
	stage := o.stage[piece]
	past := p.slices == nil && p.out.length >= pastBytes // else it is sent on right away
	p.own.each(lo, hi, func(at int, own []byte) {
		s.from = s.from[:0]
		for rank, in := range stage {
			if rank == o.x.rank {
				s.from = append(s.from, own)
			} else {
				s.from = append(s.from, in.buffer[at:at+len(own)])
			}
		}
		s.reduce(o.call.sig.dtype, o.call.How, p.out.mem[lo+at:][:len(own)], s.from, past)
	})
	clear(s.from)
}

// release gives back the memory of messages that are not used any more: the group is over.
func (o *op) release() {
	for _, e := range o.early {
		o.x.drop(e.in)
	}
	for _, piece := range o.stage {
		for _, in := range piece {
			o.x.drop(in)
		}
	}
	for _, in := range o.late {
		o.x.drop(in)
	}
	o.early, o.stage, o.late = nil, nil, nil
}

// copyLocal copies between two regions of one length, of which one may be strided.
func (p *plan) copyLocal() {
	if p.localDst.strided() {
		p.localDst.each(0, p.localDst.length, func(at int, b []byte) { p.localSrc.pack(b, at, at+len(b)) })
		return
	}
	p.localSrc.pack(p.localDst.mem, 0, p.localSrc.length)
}

// did follows do.
func (o *op) did(piece int, d *due) {
	if piece >= 0 {
		for _, in := range o.stage[piece] {
			o.x.drop(in)
		}
		o.stage[piece] = nil
		if o.plan.slices != nil {
			o.passOn(piece)
			o.pumpAll(d)
		}
	}
	o.less(d)
}

// passOn queues a piece of this member's slice, which is ready, for those who get it.
func (o *op) passOn(piece int) {
	for _, peer := range o.plan.to {
		o.queue(peer, outPiece{results, piece, o.plan.slices[o.x.rank], 0})
	}
}

// queue has a piece sent; the collective isn't complete before.
func (o *op) queue(to int, piece outPiece) {
	o.out[to].pieces = append(o.out[to].pieces, piece)
	o.left++
}

// pumpAll begins with the next rank: not all send to the same one first.
func (o *op) pumpAll(d *due) {
	// Piece by piece, as they are queued.
	for i := 1; i < o.x.size; i++ {
		o.pump((o.x.rank+i)%o.x.size, d)
	}
}

// pump sends a member what it may have now.
func (o *op) pump(to int, d *due) {
	x, out := o.x, &o.out[to]
	for len(out.pieces) > 0 {
		next := out.pieces[0]
		lo, hi := x.sizes.bounds(next.piece, next.from.length)
		if !o.open[to] && out.bytes+hi-lo > o.eager() && out.bytes > 0 {
			return
		}
		out.bytes += hi - lo
		out.pieces = out.pieces[1:]
		o.send(to, next, lo, hi, d)
	}
}

func (o *op) send(to int, next outPiece, lo, hi int, d *due) {
	x := o.x
	out := &outbound{op: o, to: to, m: o.message(next.phase, next.piece), begun: true}
	out.own = next.from.length <= x.sizes.copied && !x.carrier.Frees(to, hi-lo) || next.from.strided() && next.run == 0
	s := sending{to: to, header: out.m.encode(), left: func(free bool) { x.departed(out, free) }, done: func(err error) { x.sent(out, err) }}
	x.undelivered[o.seq]++
	if !out.own {
		s.payload = next.from.parts(lo, hi, next.run)
		d.sends = append(d.sends, s)
		return
	}
	b := x.buffers.get(hi - lo)
	next.from.pack(b, lo, hi)
	s.payload = divide(b, wireLens(lo, hi, next.run))
	s.done = func(err error) {
		x.buffers.put(b)
		x.sent(out, err)
	}
	d.sends = append(d.sends, s)
	if next.phase == gives {
		o.given(to, next.piece, d)
	}
}

// missing are the members that the collective waits for: who hasn't begun, or whose data isn't here.
func (o *op) missing() (list []int) {
	for rank, n := range o.expected {
		if rank != o.x.rank && (n > 0 && !o.heard[rank] || len(o.out[rank].pieces) > 0) {
			list = append(list, rank)
		}
	}
	if list != nil {
		return list
	}
	for rank, n := range o.expected {
		if o.arrived[rank] < n {
			list = append(list, rank)
		}
	}
	return list
}
