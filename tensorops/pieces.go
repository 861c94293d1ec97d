package tensorops

import "fmt"

// PieceBytes is the size of the memory that a Piece has. The lane's pieces are as long.
const PieceBytes = 1 << 20

// Copier is a Source of memory that the host cannot address. It copies pieces of it from and
// to page-locked memory, beside what its streams do.
type Copier interface {
	Source
	// Lend lends memory for a piece of a tensor that comes from the host, or leaves for it.
	// There is a bounded number of pieces for each of the two: it waits for one to come back
	// until cancel gives something, and not at all without a cancel. Then it is nil.
	Lend(t Tensor, leaves bool, cancel <-chan struct{}) (Piece, error)
}

// Piece is host memory on loan, which a piece of a tensor passes through. It is for one
// goroutine at a time.
type Piece interface {
	// Memory is the PieceBytes on loan.
	Memory() []byte
	// Copy begins to copy the tensor's n bytes from offset on to the memory's beginning, or
	// from there if it comes in.
	Copy(offset, n int)
	// Wait waits for the copy that was begun.
	Wait() error
	// Release gives the memory back. A copy that was begun has been waited for.
	Release()
}

// Pieces is a tensor that leaves a device, or comes to one, piece by piece. Nothing else may
// be done with the tensor meanwhile.
type Pieces struct {
	t      Tensor
	leaves bool
	copier Copier
}

// Leaving is a tensor that is to leave in pieces; false if the host can address it, or nobody
// copies it.
func Leaving(t Tensor) (*Pieces, bool) { return piecesOf(t, true) }

// Arriving is a tensor that is to come in pieces; false as of Leaving.
func Arriving(t Tensor) (*Pieces, bool) { return piecesOf(t, false) }

func piecesOf(t Tensor, leaves bool) (*Pieces, bool) {
	if !t.Valid() || t.buf.Mem != nil || !t.Contiguous() {
		return nil, false
	}
	c, ok := copierOf(t.buf.Home)
	if !ok {
		return nil, false
	}
	return &Pieces{t, leaves, c}, true
}

func copierOf(a Arena) (Copier, bool) {
	p, ok := a.(*Pool)
	if !ok {
		return nil, false
	}
	c, ok := p.memory.source.(Copier)
	return c, ok
}

// Len is the tensor's length in bytes.
func (p *Pieces) Len() int { return p.t.Len() * p.t.DType().Size() }

// Lend lends memory for a piece: see Copier.
func (p *Pieces) Lend(cancel <-chan struct{}) (Piece, error) {
	piece, err := p.copier.Lend(p.t, p.leaves, cancel)
	if err != nil {
		return nil, fmt.Errorf("memory for a piece of %v: %w", p.t, err)
	}
	return piece, nil
}

// Beside makes an arena of the same memory as another, for tensors that come to it in pieces:
// a stream's own gives memory out in the stream's order, which these don't know. False if
// nobody copies it.
func Beside(a Arena, name string) (Arena, bool) {
	if _, ok := copierOf(a); !ok {
		return nil, false
	}
	p := a.(*Pool)
	return p.memory.NewArenaVia(name, p.via), true
}
