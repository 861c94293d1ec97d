package cpu

import (
	"unsafe"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// packing is memory for packed operands: on huge pages where it is large, since a
// product's inner loop reads all of it again and again, and outside of the collector's
// heap, which would keep as much again free. It grows to what the largest product
// needs and goes back to the system when its owner does.
type packing struct{ piece *hostmem.Piece }

// floats returns n numbers of arbitrary content. Without memory it panics: the
// operation then fails.
func (p *packing) floats(n int) []float32 {
	if p.piece == nil || len(p.piece.Bytes) < 4*n {
		piece, err := hostmem.New(4 * n)
		if err != nil {
			panic(err)
		}
		if p.piece != nil {
			_ = p.piece.Free() // else it stays until the collector finds it
		}
		p.piece = piece
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(p.piece.Bytes))), n)
}
