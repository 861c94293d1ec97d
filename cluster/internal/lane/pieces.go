package lane

import "errors"

// Pieces is a payload that lies where the lane can't read or write it, such as in a device's memory. It passes
// through memory on loan, a piece at a time. Safe for concurrent use.
type Pieces interface {
	// Len is its length in bytes.
	Len() int
	// Lend lends memory of at least LimitPiece bytes. Where all of it is out, it waits for some to come back until
	// cancel gives something, and not at all without a cancel; then it returns nil. Whoever has a piece gives
	// it back sooner or later, whatever the peers do that have others.
	Lend(cancel <-chan struct{}) (Piece, error)
}

// Piece is memory on loan, for one goroutine at a time.
type Piece interface {
	Memory() []byte
	// Copy begins to copy the payload's n bytes from offset on to the beginning of the memory, or from there if the
	// payload comes in.
	Copy(offset, n int)
	// Wait waits for the copy.
	Wait() error
	// Release gives the memory back, when no copy is under way.
	Release()
}

// Place is where the payload of a message is read into: memory of its parts' lengths, or a payload that comes in pieces,
// of a message of one part.
type Place struct {
	Parts  [][]byte
	Pieces Pieces // nil: Parts
}

// TakePlace is Take, for a group whose messages may come in pieces.
type TakePlace func(from ID, header []byte, lens []int) (place Place, done func(error), err error)

// ErrPieces: a payload could not be copied to or from where it lies.
var ErrPieces = errors.New("lane: a payload could not be copied")

// OpenPlaces is Open, for a group whose messages may come in pieces.
func (n *Node) OpenPlaces(group ID, take TakePlace) *Group {
	return n.open(&Group{id: group, take: take})
}

// SendPieces is Send, for a payload that leaves in pieces, as one part. A piece is copied again when it has to be sent
// again: the payload stays as it is until done is called.
func (g *Group) SendPieces(to ID, header []byte, payload Pieces, done func(error)) {
	g.post(to, header, nil, payload, nil, done)
}

// lent is a piece that a stream copies out, or nothing.
type lent struct {
	Piece
	copying bool
}

// end gives it back.
func (l *lent) end() {
	if l.Piece == nil {
		return
	}
	if l.copying {
		_ = l.Wait() // what is wrong with it matters to nobody any more
	}
	l.Release()
	*l = lent{}
}
