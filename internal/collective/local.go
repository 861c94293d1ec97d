package collective

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/troupe-ml/troupe/tensorops"
)

// Local makes a group of n members in this process; member i has rank i. A small collective runs on
// the goroutine of the last member that starts it, a large one on as many goroutines as are useful,
// which end with it. Tensors are read and written in place.
func Local(name string, n int) []*Group {
	m := &meeting{name: name, next: make([]uint64, n), left: make([]bool, n)}
	m.idle.L = &m.mu
	m.base = 1
	members := make([]*Group, n)
	for rank := range members {
		m.next[rank] = 1
		members[rank] = &Group{name: name, rank: rank, size: n, way: &seat{m, rank}}
	}
	if n == 1 {
		members[0].way = alone{}
	}
	return members
}

// alone is the way of a group of one.
type alone struct{}

func (alone) begin(c call) {
	switch {
	case c.What == tensorops.Barrier || c.Dst.Same(c.Src):
	case c.What == tensorops.AllToAllV: // a single source's rows are in the order of its experts already
		n := tableOf(&c.CollectiveArgs).Sent(0) * c.Src.Cols() * c.Src.DType().Size()
		copy(tensorops.Bytes(c.Dst), tensorops.Bytes(c.Src)[:n])
	default:
		copy(tensorops.Bytes(c.Dst), tensorops.Bytes(c.Src))
	}
	c.done(nil)
}
func (alone) leave(error, bool)      {}
func (alone) status() (Status, bool) { return Status{}, false }

// meeting is where the members of one process meet.
type meeting struct {
	name string

	mu      sync.Mutex
	idle    sync.Cond
	rounds  []*round // that somebody has come to and that are not complete, the oldest first
	base    uint64   // the number of the first of them, or of the next
	next    []uint64 // of each member's next collective
	left    []bool
	err     error // why the group is over
	running bool  // the first round is under way, or done functions are being called
}

// round is one collective.
type round struct {
	calls []call // by rank
	here  []bool
	came  int
}

// seat is a member's place in a meeting.
type seat struct {
	*meeting
	rank int
}

func (s *seat) begin(c call) {
	if err := s.join(c); err != nil {
		c.done(err)
		return
	}
	s.advance()
}

// join puts a call into its round.
func (s *seat) join(c call) error {
	m := s.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left[s.rank] {
		return fmt.Errorf("group %s, %v: %w", m.name, c.sig, ErrClosed)
	}
	if m.err != nil {
		return m.err
	}
	place := int(m.next[s.rank] - m.base)
	if place >= LimitPending {
		return fmt.Errorf("group %s, %v: %w: the limit is %d", m.name, c.sig, ErrFull, place)
	}
	m.next[s.rank]++
	if place == len(m.rounds) {
		m.rounds = append(m.rounds, &round{calls: make([]call, len(m.next)), here: make([]bool, len(m.next))})
	}
	r := m.rounds[place]
	r.calls[s.rank], r.here[s.rank] = c, true
	r.came++
	for rank, here := range r.here {
		if here && r.calls[rank].sig != c.sig && m.err == nil {
			m.err = mismatch(m.name, m.base+uint64(place), s.rank, c.sig, rank, r.calls[rank].sig)
		}
	}
	return nil
}

// mismatch is the error of two members that bring different collectives.
func mismatch(group string, number uint64, rank int, brings Signature, other int, otherBrings Signature) error {
	return fmt.Errorf("group %s, collective %d: rank %d started %v, but rank %d started %v: %w", group, number, rank, brings, other,
		otherBrings,
		ErrMismatch)
}

// advance carries out the rounds to which all have come, in their order, unless somebody does so already.
func (m *meeting) advance() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		return // whoever does looks again
	}
	for {
		if m.err != nil {
			m.abandon()
		}
		if len(m.rounds) == 0 || m.rounds[0].came < len(m.next) {
			break
		}
		m.running = true
		calls := m.rounds[0].calls
		m.mu.Unlock()
		w := newWork(calls)
		if w.bytes > inlineBytes && w.jobs > 1 {
			w.spread(m.finish)
			m.mu.Lock()
			return
		}
		if w.jobs > 0 {
			s := scratches.Get().(*scratch)
			for job := range w.jobs {
				w.do(s, job)
			}
			scratches.Put(s)
		}
		m.report(calls)
		m.mu.Lock()
		m.running = false
		m.idle.Broadcast()
	}
}

// finish ends the round that goroutines have carried out.
func (m *meeting) finish(w *work) {
	m.report(w.calls)
	m.mu.Lock()
	m.running = false
	m.idle.Broadcast()
	m.mu.Unlock()
	m.advance()
}

// report takes the first round, which is complete, from the list and tells its members.
func (m *meeting) report(calls []call) {
	m.mu.Lock()
	m.rounds[0] = nil
	m.rounds = m.rounds[1:]
	m.base++
	m.mu.Unlock()
	for i := range calls {
		calls[i].done(nil)
	}
}

// abandon ends all rounds with the group's error. mu is held, and not while done functions are called.
func (m *meeting) abandon() {
	rounds := m.rounds
	m.rounds = nil
	m.base += uint64(len(rounds))
	m.running = true
	m.mu.Unlock()
	for _, r := range rounds {
		for rank := range r.calls {
			if r.here[rank] {
				r.calls[rank].done(m.errorOf(rank))
			}
		}
	}
	m.mu.Lock()
	m.running = false
	m.idle.Broadcast()
}

// errorOf is what a member is told of the group's end.
func (m *meeting) errorOf(rank int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left[rank] {
		return fmt.Errorf("group %s: %w", m.name, ErrClosed)
	}
	return m.err
}

// spread carries out the jobs by several goroutines, the last of which calls ended.
func (w *work) spread(ended func(*work)) {
	helpers := min(runtime.GOMAXPROCS(0), w.n, w.jobs)
	var taken, left atomic.Int64
	left.Store(int64(helpers))
	for range helpers {
		go func() { // ends when there are no more jobs
			s := scratches.Get().(*scratch)
			for job := taken.Add(1) - 1; job < int64(w.jobs); job = taken.Add(1) - 1 {
				w.do(s, int(job))
			}
			scratches.Put(s)
			if left.Add(-1) == 0 {
				ended(w)
			}
		}()
	}
}

func (s *seat) leave(cause error, _ bool) {
	m := s.meeting
	m.mu.Lock()
	m.left[s.rank] = true
	if m.err == nil {
		m.err = leftError(m.name, s.rank, cause)
	}
	// What is under way has the tensors of all members, and ends soon.
	for m.running || len(m.rounds) > 0 {
		if m.running {
			m.idle.Wait()
		} else {
			m.abandon()
		}
	}
	m.mu.Unlock()
}

// leftError says who has left a group and why.
func leftError(group string, rank int, cause error) error {
	if cause == nil {
		return fmt.Errorf("group %s: rank %d: %w", group, rank, ErrLeft)
	}
	return fmt.Errorf("group %s: rank %d: %w: %w", group, rank, ErrLeft, cause)
}

func (s *seat) status() (Status, bool) {
	m := s.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rounds) == 0 || !m.rounds[0].here[s.rank] {
		return Status{}, false // it comes to all rounds in their order
	}
	r := m.rounds[0]
	c := &r.calls[s.rank]
	st := Status{Group: m.name, Collective: m.base, What: c.sig.String(), Since: c.since}
	for rank, here := range r.here {
		if !here {
			st.Missing = append(st.Missing, rank)
		}
	}
	return st, true
}
