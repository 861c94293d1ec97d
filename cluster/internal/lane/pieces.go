package lane

import "errors"

// Pieces is a payload that the lane can't read or write directly, such as one in a device's memory. It passes
// through borrowed memory, a piece at a time. It is safe for concurrent use.
type Pieces interface {
	// Len returns the length of the payload in bytes.
	Len() int
	// Lend lends memory of at least LimitPiece bytes. If none is free, it waits for some until cancel receives a value,
	// and then returns nil; with a nil cancel it returns nil at once. The lane releases each piece eventually, even if
	// other peers make no progress.
	Lend(cancel <-chan struct{}) (Piece, error)
}

// Piece is borrowed memory, for one goroutine at a time.
type Piece interface {
	Memory() []byte
	// Copy begins to copy n bytes of the payload, from offset on, to the beginning of the memory. If the payload is
	// being received, it copies in the other direction.
	Copy(offset, n int)
	// Wait waits for the copy.
	Wait() error
	// Release returns the memory. No copy may be in progress.
	Release()
}

// Place is the destination of a message's payload: memory with its parts' lengths, or Pieces for a message of one part.
type Place struct {
	Parts  [][]byte
	Pieces Pieces // nil: Parts
}

// TakePlace is Take for a group whose messages may be received in pieces.
type TakePlace func(from ID, header []byte, lens []int) (place Place, done func(error), err error)

// ErrPieces: a payload could not be copied to or from its memory.
var ErrPieces = errors.New("lane: a payload could not be copied")

// OpenPlaces is Open for a group whose messages may be received in pieces.
func (n *Node) OpenPlaces(group ID, take TakePlace) *Group {
	return n.open(&Group{id: group, take: take})
}

// SendPieces is Send for a payload that is sent in pieces, as one part. A resend copies a piece again, so the payload must
// stay unchanged until done is called.
func (g *Group) SendPieces(to ID, header []byte, payload Pieces, done func(error)) {
	g.post(to, header, nil, payload, nil, done)
}

// lent is a borrowed piece of a sending stream, or nothing.
type lent struct {
	Piece
	copying bool
}

// end returns the piece.
func (l *lent) end() {
	if l.Piece == nil {
		return
	}
	if l.copying {
		_ = l.Wait() // its error does not matter any more
	}
	l.Release()
	*l = lent{}
}
