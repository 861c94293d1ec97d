package netlab

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// fabric is the switch between the hosts, with their links. It has no clock and does no I/O: the
// caller passes packets and the time, and asks which packets are due. Times count from the start of
// the lab.
type fabric struct {
	ports    []port
	cut      [][]bool // cut[from][to]
	held     schedule
	sequence uint64
	random   *rand.Rand
	free     [][]byte // buffers of delivered packets
}

// port is a host's link in both directions.
type port struct {
	link    Link
	out, in pipe
	counts  Counts
}

// pipe is one direction of a link.
type pipe struct {
	sent time.Duration // when the last packet's last bit was, or will be, on the cable
	exit time.Duration // when the last packet leaves it: no packet overtakes another
}

// transit is a packet in transit.
type transit struct {
	at       time.Duration // when it leaves its current pipe
	sequence uint64        // the order of packets that leave at the same time
	from, to int
	arriving bool // it is in the receiver's pipe, no longer in the sender's
	frame    []byte
	bytes    int // of the packet in it
}

func newFabric(hosts int) *fabric {
	f := &fabric{ports: make([]port, hosts), cut: make([][]bool, hosts), random: rand.New(rand.NewPCG(77, 0))}
	for i := range f.cut {
		f.cut[i] = make([]bool, hosts)
	}
	return f
}

// send handles a packet from a host. It returns true if the packet goes to the receiver at once;
// otherwise the fabric drops it or keeps a copy. frame is the packet with the device's header, and
// bytes the size of the packet without it.
func (f *fabric) send(now time.Duration, from, to int, frame []byte, bytes int) bool {
	f.ports[from].counts.Sent++
	if f.cut[from][to] {
		f.ports[from].counts.Cut++
		return false
	}
	sender, receiver := &f.ports[from], &f.ports[to]
	tr := transit{from: from, to: to, bytes: bytes}
	var ok bool
	if tr.at, ok = f.through(sender, &sender.out, now, bytes); !ok {
		return false
	}
	waiting := len(f.held) > 0 && f.held[0].at <= now // an earlier packet comes first
	if tr.at <= now && !waiting {
		if tr.at, ok = f.through(receiver, &receiver.in, now, bytes); !ok {
			return false
		}
		tr.arriving = true
		if tr.at <= now {
			receiver.counts.Received++
			return true
		}
	}
	if len(f.held) >= LimitHeldPackets {
		sender.counts.Overflowed++
		return false
	}
	tr.frame = append(f.buffer(), frame...)
	f.push(tr)
	return false
}

// through returns when a packet that enters the pipe at now leaves it; false: the packet is lost.
func (f *fabric) through(p *port, pipe *pipe, now time.Duration, bytes int) (time.Duration, bool) {
	if p.link.LossPercent > 0 && f.random.Float64()*100 < p.link.LossPercent {
		p.counts.Lost++
		return 0, false
	}
	if pipe.sent-now > p.link.queueTime() {
		p.counts.Overflowed++
		return 0, false
	}
	return p.link.pass(pipe, now, bytes), true
}

// pass returns when a packet leaves the pipe, by the link's rate and delay.
func (l Link) pass(pipe *pipe, now time.Duration, bytes int) time.Duration {
	pipe.sent = max(pipe.sent, now) + l.sendTime(bytes)
	pipe.exit = max(pipe.exit, pipe.sent+l.Delay)
	return pipe.exit
}

// sendTime returns how long it takes to put the bytes on the cable.
func (l Link) sendTime(bytes int) time.Duration {
	if l.BitsPerSecond == 0 {
		return 0
	}
	return time.Duration(float64(bytes) * 8 / float64(l.BitsPerSecond) * float64(time.Second))
}

// queueTime returns how long a packet may wait for its turn.
func (l Link) queueTime() time.Duration {
	return max(LimitQueueTime, l.sendTime(LimitQueueBytes))
}

// due returns the next packet that has reached its receiver. The caller returns the frame with done.
func (f *fabric) due(now time.Duration) (to int, frame []byte, ok bool) {
	for len(f.held) > 0 && f.held[0].at <= now {
		tr := heap.Pop(&f.held).(transit)
		if f.cut[tr.from][tr.to] { // cut after it was sent
			f.ports[tr.from].counts.Cut++
			f.done(tr.frame)
			continue
		}
		if !tr.arriving {
			receiver := &f.ports[tr.to]
			if tr.at, ok = f.through(receiver, &receiver.in, tr.at, tr.bytes); !ok {
				f.done(tr.frame)
				continue
			}
			tr.arriving = true
			if tr.at > now {
				f.push(tr)
				continue
			}
		}
		f.ports[tr.to].counts.Received++
		return tr.to, tr.frame, true
	}
	return 0, nil, false
}

// next returns when the next packet leaves a pipe; false: there is none.
func (f *fabric) next() (time.Duration, bool) {
	if len(f.held) == 0 {
		return 0, false
	}
	return f.held[0].at, true
}

// setLink changes a host's link. Packets in the old link enter the new one at now, in the same order,
// and can't be lost again.
func (f *fabric) setLink(now time.Duration, host int, link Link) {
	p := &f.ports[host]
	p.link, p.out, p.in = link, pipe{}, pipe{}
	slices.SortFunc(f.held, func(a, b transit) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.sequence, b.sequence))
	})
	for i := range f.held {
		tr := &f.held[i]
		switch {
		case !tr.arriving && tr.from == host:
			tr.at = link.pass(&p.out, now, tr.bytes)
		case tr.arriving && tr.to == host:
			tr.at = link.pass(&p.in, now, tr.bytes)
		}
	}
	heap.Init(&f.held)
}

func (f *fabric) push(tr transit) {
	f.sequence++
	tr.sequence = f.sequence
	heap.Push(&f.held, tr)
}

func (f *fabric) done(frame []byte) { f.free = append(f.free, frame[:0]) }

func (f *fabric) buffer() []byte {
	if len(f.free) == 0 {
		return make([]byte, 0, frameBytes)
	}
	last := len(f.free) - 1
	buffer := f.free[last]
	f.free = f.free[:last]
	return buffer
}

// schedule is a heap of packets, the next first.
type schedule []transit

func (s schedule) Len() int { return len(s) }
func (s schedule) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].sequence < s[j].sequence
}
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)   { *s = append(*s, x.(transit)) }
func (s *schedule) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	(*s)[last] = transit{}
	*s = (*s)[:last]
	return x
}
