package lane

import "sync"

// limitLoans bounds the slots of a region that its receiver keeps; without a free slot the sender has to use the stream.
const limitLoans = 16

// Loan is a message's payload in memory shared with the sender. The taker of the message may keep and use it there
// instead of having it copied.
type Loan struct {
	region *region
	slot   int
	memory []byte
	kept   bool
}

// Keep returns the payload, with the parts one after another. It stays unchanged until Return, even if the message, the
// group, the stream or the sender ends earlier. Keep may be called once, within the TakeLoan function; the payload is then
// not copied. Each kept loan must be returned, whatever happens to the message.
func (l *Loan) Keep() []byte {
	l.kept = true
	l.region.kept.add()
	return l.memory
}

// Return returns the memory to the sender, which may reuse it.
func (l *Loan) Return() {
	l.memory = nil
	l.region.free(l.slot)
	if l.region.kept.drop() {
		l.region.unmap()
	}
}

// TakeLoan is Take for a group that can use payloads in shared memory. loan is nil if the payload is not there. After
// Keep, the function need not return parts.
type TakeLoan func(from ID, header []byte, lens []int, loan *Loan) (parts [][]byte, done func(error), err error)

// OpenLoans is Open for such a group.
func (n *Node) OpenLoans(group ID, take TakeLoan) *Group {
	return n.open(&Group{id: group, takeLoan: take})
}

// keepers counts the kept slots of a region.
type keepers struct {
	mu     sync.Mutex
	n      int
	closed bool
}

// room reports whether another slot may be kept.
func (l *keepers) room() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n < limitLoans
}

func (l *keepers) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
}

// drop uncounts a slot, and reports whether the region can now be unmapped.
func (l *keepers) drop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	return l.n == 0 && l.closed
}

// close reports whether the region can be unmapped now. Otherwise the last drop reports it.
func (l *keepers) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.n == 0
}
