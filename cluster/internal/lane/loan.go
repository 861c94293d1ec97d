package lane

import "sync"

// limitLoans bounds the slots of a region that its receiver keeps: with none free the sender has to use the stream.
const limitLoans = 16

// Loan is a message's payload where it lies in memory shared with the sender: it can be read there instead of being
// copied. Whoever takes the message decides.
type Loan struct {
	region *region
	slot   int
	memory []byte
	kept   bool
}

// Keep returns the payload, the parts one after another, which stays as it is until Return: past the
// message's end, the group's, the stream's, and the sender's. It may be called once, while the message is taken; its place
// is then not read into. Each one that is kept has to be returned, whatever becomes of the message.
func (l *Loan) Keep() []byte {
	l.kept = true
	l.region.kept.add()
	return l.memory
}

// Return gives the memory back to the sender, who fills it again.
func (l *Loan) Return() {
	l.memory = nil
	l.region.free(l.slot)
	if l.region.kept.drop() {
		l.region.unmap()
	}
}

// TakeLoan is Take for a group that can use payloads where they lie. loan is nil where there is nothing to keep. After Keep
// no parts are needed.
type TakeLoan func(from ID, header []byte, lens []int, loan *Loan) (parts [][]byte, done func(error), err error)

// OpenLoans is Open for such a group.
func (n *Node) OpenLoans(group ID, take TakeLoan) *Group {
	return n.open(&Group{id: group, takeLoan: take})
}

// keepers counts the slots of a region that are kept.
type keepers struct {
	mu     sync.Mutex
	n      int
	closed bool
}

// room says whether another slot may be kept.
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

// drop reports whether the region was only open for this one.
func (l *keepers) drop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	return l.n == 0 && l.closed
}

// close reports whether no slot is kept any more. Else the last drop says so.
func (l *keepers) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.n == 0
}
