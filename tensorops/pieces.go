package tensorops

import "fmt"

// PieceBytes is the size of a Piece's memory. The lane's pieces have the same size.
const PieceBytes = 1 << 20

// Copier is a Source of memory that the host cannot address. It copies pieces of tensors from and
// to page-locked memory, beside the work of its streams.
type Copier interface {
	Source
	// Lend lends memory for a piece of a tensor that arrives from the host, or leaves for it. The
	// number of pieces is limited for each direction. Lend waits for a free one until cancel
	// delivers a value; if cancel is nil it does not wait. Without a piece it returns nil.
	Lend(t Tensor, leaves bool, cancel <-chan struct{}) (Piece, error)
}

// Piece is borrowed host memory through which a part of a tensor passes. One goroutine at a time
// may use it.
type Piece interface {
	// Memory returns the borrowed memory, of PieceBytes.
	Memory() []byte
	// Copy starts copying n bytes between the tensor, from offset on, and the start of the memory:
	// to the memory if the tensor leaves, otherwise to the tensor.
	Copy(offset, n int)
	// Wait waits for the copy that was started.
	Wait() error
	// Release returns the memory. A started copy must have been waited for.
	Release()
}

// Pieces is a tensor that leaves a device, or arrives at one, piece by piece. The tensor must not
// be used for anything else meanwhile.
type Pieces struct {
	t      Tensor
	leaves bool
	copier Copier
}

// Leaving prepares a tensor to leave in pieces. It returns false if the host can address the tensor
// or the device has no Copier.
func Leaving(t Tensor) (*Pieces, bool) { return piecesOf(t, true) }

// Arriving prepares a tensor to arrive in pieces. It returns false in the same cases as Leaving.
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

// Len returns the tensor's length in bytes.
func (p *Pieces) Len() int { return p.t.Len() * p.t.DType().Size() }

// Lend lends memory for a piece; see Copier.
func (p *Pieces) Lend(cancel <-chan struct{}) (Piece, error) {
	piece, err := p.copier.Lend(p.t, p.leaves, cancel)
	if err != nil {
		return nil, fmt.Errorf("borrow memory for a piece of %v: %w", p.t, err)
	}
	return piece, nil
}

// Beside makes an arena of the same memory as another, for tensors that arrive in pieces: a
// stream's own arena hands out memory in the stream's order, which these tensors do not follow. It
// returns false if the memory has no Copier.
func Beside(a Arena, name string) (Arena, bool) {
	if _, ok := copierOf(a); !ok {
		return nil, false
	}
	p := a.(*Pool)
	return p.memory.NewArenaVia(name, p.via), true
}
