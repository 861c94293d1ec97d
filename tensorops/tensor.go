package tensorops

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// MaxRank is the largest number of dimensions of a tensor.
const MaxRank = 6

// MaxDim is the largest size of one dimension.
const MaxDim = 1<<31 - 1

// maxLen is the largest number of elements: 2^56 where an int has 64 bits, so
// that sizes in bytes don't overflow.
const maxLen = math.MaxInt >> 7

// Buffer is a piece of device memory. The holder of the tensor that views it owns it. When it is
// released it returns to its arena.
type Buffer struct {
	Mem  []byte // the memory, for devices whose memory the host can address
	Addr uint64 // its address, for devices whose memory the host cannot address
	Home Arena  // the arena to which it returns

	piece *hostmem.Piece // where Mem comes from, for host arenas
	bytes int            // size of its class
	place int            // index in its arena's Lent, while it is in use
	since uint64         // time of its last return, by its memory's clock
	of    *piece         // piece of a slab; nil: not from a slab
	free  atomic.Bool
}

// Arena hands out buffers and takes them back. It is safe for concurrent use.
type Arena interface {
	// Take returns a buffer of at least the given number of bytes with undefined contents. It fails
	// with ErrOutOfMemory.
	Take(bytes int) (*Buffer, error)
	// Put takes a buffer back.
	Put(*Buffer)
	// Close frees all memory, including that of buffers in use. Their tensors must not be used any
	// more, and releasing them does nothing. Afterwards Take fails with ErrClosed.
	Close()
}

// Tensor is a row-major view of a buffer. It is a value: copying it copies no data and transfers no
// ownership. The zero Tensor is invalid and stands for no tensor; messages call it "none".
type Tensor struct {
	buf    *Buffer
	off    int   // offset of the first element, in elements
	stride int32 // elements from one row (last dimension) to the next
	dims   [MaxRank]int32
	rank   int8
	dtype  DType
}

// Valid reports whether t is a tensor, not the zero Tensor.
func (t Tensor) Valid() bool { return t.buf != nil }

// DType returns the type of the elements.
func (t Tensor) DType() DType { return t.dtype }

// Rank returns the number of dimensions.
func (t Tensor) Rank() int { return int(t.rank) }

// Dim returns the size of dimension i; a negative i counts from the end.
func (t Tensor) Dim(i int) int {
	if i < 0 {
		i += int(t.rank)
	}
	return int(t.dims[i])
}

// Shape returns a copy of the dimensions.
func (t Tensor) Shape() []int {
	s := make([]int, t.rank)
	for i := range s {
		s[i] = int(t.dims[i])
	}
	return s
}

// Len returns the number of elements; a tensor without dimensions has one.
func (t Tensor) Len() int {
	n := 1
	for i := range int(t.rank) {
		n *= int(t.dims[i])
	}
	return n
}

// Cols returns the size of the last dimension; 1 without dimensions.
func (t Tensor) Cols() int {
	if t.rank == 0 {
		return 1
	}
	return int(t.dims[t.rank-1])
}

// Rows returns the number of rows: Len divided by Cols.
func (t Tensor) Rows() int {
	n := 1
	for i := range int(t.rank) - 1 {
		n *= int(t.dims[i])
	}
	return n
}

// Stride returns the distance between rows, in elements. It is Cols unless t is a view of some
// columns.
func (t Tensor) Stride() int { return int(t.stride) }

// Contiguous reports whether the elements follow each other without a gap.
func (t Tensor) Contiguous() bool { return t.Stride() == t.Cols() || t.Rows() <= 1 }

// Offset returns the position of the first element in the buffer, in elements.
func (t Tensor) Offset() int { return t.off }

// Buffer returns the memory of the view.
func (t Tensor) Buffer() *Buffer { return t.buf }

func (t Tensor) String() string {
	if !t.Valid() {
		return "none"
	}
	var b strings.Builder
	b.WriteString(t.dtype.String())
	b.WriteByte('[')
	for i := range int(t.rank) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, t.dims[i])
	}
	if !t.Contiguous() {
		fmt.Fprintf(&b, " stride %d", t.stride)
	}
	b.WriteByte(']')
	return b.String()
}

// SameShape reports whether two tensors have the same dimensions.
func (t Tensor) SameShape(u Tensor) bool { return t.rank == u.rank && t.dims == u.dims }

// View returns the same elements under another shape. It panics if the number of elements differs
// or t is not contiguous: shapes come from the program itself. A view of an invalid tensor is
// invalid, here and in the methods below: Alloc returns one after an error, and recording
// continues.
func (t Tensor) View(dims ...int) Tensor {
	if !t.Valid() {
		return Tensor{}
	}
	v, err := shaped(t.dtype, dims)
	if err != nil {
		panic(fmt.Sprintf("tensorops: view of %v: %v", t, err))
	}
	if v.Len() != t.Len() || !t.Contiguous() || t.dtype.Quantized() && v.Cols() != t.Cols() {
		panic(fmt.Sprintf("tensorops: %v cannot be viewed as %d", t, v.Shape()))
	}
	v.buf, v.off = t.buf, t.off
	return v
}

// Columns returns a view of the columns [lo, hi) of a tensor taken as a matrix of Rows × Cols.
func (t Tensor) Columns(lo, hi int) Tensor {
	if !t.Valid() {
		return Tensor{}
	}
	if lo < 0 || hi < lo || hi > t.Cols() {
		panic(fmt.Sprintf("tensorops: columns %d to %d of %v", lo, hi, t))
	}
	v := t
	v.rank, v.dims = 2, [MaxRank]int32{int32(t.Rows()), int32(hi - lo)}
	v.off += lo
	return v
}

// RowRange returns a view of the rows [lo, hi) of a tensor taken as a matrix.
func (t Tensor) RowRange(lo, hi int) Tensor {
	if !t.Valid() {
		return Tensor{}
	}
	if lo < 0 || hi < lo || hi > t.Rows() {
		panic(fmt.Sprintf("tensorops: rows %d to %d of %v", lo, hi, t))
	}
	v := t
	v.rank, v.dims = 2, [MaxRank]int32{int32(hi - lo), int32(t.Cols())}
	v.off += lo * t.Stride()
	return v
}

// Part returns a view, with the given shape, of a contiguous tensor's elements starting at element
// from. Elements are counted in the order of memory; their number may exceed the largest dimension.
func (t Tensor) Part(from int, dims ...int) Tensor {
	if !t.Valid() {
		return Tensor{}
	}
	v, err := shaped(t.dtype, dims)
	if err != nil {
		panic(fmt.Sprintf("tensorops: part of %v: %v", t, err))
	}
	if from < 0 || v.Len() > t.Len()-from || !t.Contiguous() || t.dtype.Quantized() {
		panic(fmt.Sprintf("tensorops: %v has no part of shape %d starting at element %d", t, v.Shape(), from))
	}
	v.buf, v.off = t.buf, t.off+from
	return v
}

// As returns the same elements as numbers of another type, for a device that stores them that way.
func (t Tensor) As(d DType) Tensor {
	t.dtype = d
	return t
}

// Matrix returns a view of Rows × Cols.
func (t Tensor) Matrix() Tensor {
	if !t.Valid() {
		return Tensor{}
	}
	v := t
	v.rank, v.dims = 2, [MaxRank]int32{int32(t.Rows()), int32(t.Cols())}
	return v
}

// Release frees the buffer at once. The holder must know that no device uses it; inside a list use
// List.Free.
func (t Tensor) Release() {
	if t.buf == nil {
		return
	}
	if t.buf.free.Swap(true) {
		panic(fmt.Sprintf("tensorops: the buffer of %v is released twice", t))
	}
	t.buf.Home.Put(t.buf)
}

// Released reports whether the buffer has been freed, by Release or List.Free, and not been handed
// out again since.
func (t Tensor) Released() bool { return t.buf != nil && t.buf.free.Load() }

// NewTensor allocates a tensor of the given type and shape from an arena, for a device that stores
// each type in its own size. List.Alloc also handles other devices.
func NewTensor(a Arena, dtype DType, dims ...int) (Tensor, error) {
	return newTensor(a, dtype, dtype.Size(), dims)
}

// newTensor supports devices that store an element in more bytes than its type has. Quantized types have
// 0 bytes for an element on devices that store them in blocks.
func newTensor(a Arena, dtype DType, elemBytes int, dims []int) (Tensor, error) {
	t, err := shaped(dtype, dims)
	if err != nil {
		return Tensor{}, err
	}
	bytes := t.Len() * elemBytes
	if elemBytes == 0 {
		bytes = dtype.StoredBytes(t.Rows(), t.Cols())
	}
	buf, err := a.Take(bytes)
	if err != nil {
		return Tensor{}, fmt.Errorf("%v%d: %w", dtype, t.Shape(), err)
	}
	buf.free.Store(false)
	t.buf = buf
	return t, nil
}

// shaped checks the dimensions and makes a tensor without memory.
func shaped(dtype DType, dims []int) (Tensor, error) {
	if len(dims) > MaxRank {
		return Tensor{}, fmt.Errorf("%w: the tensor has %d dimensions; the limit is %d", ErrShape, len(dims), MaxRank)
	}
	t := Tensor{dtype: dtype, rank: int8(len(dims)), stride: 1}
	n := 1
	for i, d := range dims {
		if d < 0 || d > MaxDim {
			return Tensor{}, fmt.Errorf("%w: dimension %d is %d: it must be from 0 to %d", ErrShape, i, d, MaxDim)
		}
		if d > 0 && n > maxLen/d {
			return Tensor{}, fmt.Errorf("%w: the shape has more than %d elements", ErrShape, maxLen)
		}
		n *= d
		t.dims[i] = int32(d)
		t.stride = int32(d)
	}
	return t, nil
}

// Elements returns the elements of a contiguous tensor in host memory as a slice of E, whose size
// must be that of the stored element.
func Elements[E Number](t Tensor) []E {
	n := t.Len()
	if n == 0 {
		return nil
	}
	if !t.Contiguous() {
		n = (t.Rows()-1)*t.Stride() + t.Cols()
	}
	var e E
	size := int(unsafe.Sizeof(e))
	if (t.off+n)*size > len(t.buf.Mem) {
		panic(fmt.Sprintf("tensorops: %v at element %d exceeds its buffer of %d bytes", t, t.off, len(t.buf.Mem)))
	}
	return unsafe.Slice((*E)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(t.buf.Mem)), t.off*size)), n)
}

// StoredBytes returns the number of bytes of the elements of a contiguous tensor, on devices that store each
// type in its own size.
func (t Tensor) StoredBytes() int { return t.dtype.StoredBytes(t.Rows(), t.Cols()) }

// ByteRange returns where the elements are in the buffer, with the gaps between rows: the bytes [from, to). Rows
// of quantized types count whole.
func (t Tensor) ByteRange() (from, to int) {
	if t.Len() == 0 {
		return 0, 0
	}
	if t.dtype.Quantized() {
		row, width := t.off/t.Stride(), t.dtype.StoredBytes(1, t.Stride())
		return row * width, (row + t.Rows()) * width
	}
	size := t.dtype.Size()
	return t.off * size, (t.off + (t.Rows()-1)*t.Stride() + t.Cols()) * size
}

// Bytes returns a view of the elements of a contiguous tensor in host memory as bytes.
func Bytes(t Tensor) []byte {
	if t.dtype.Quantized() {
		from, to := t.ByteRange()
		return t.buf.Mem[from:to]
	}
	size := t.DType().Size()
	return t.buf.Mem[t.off*size:][:t.Len()*size]
}

// Runs returns views of the elements of a tensor in host memory as bytes: one if it is contiguous,
// otherwise one for each row.
func Runs(t Tensor) [][]byte {
	switch {
	case !t.Valid():
		return nil
	case t.Contiguous():
		return [][]byte{Bytes(t)}
	}
	rows := make([][]byte, t.Rows())
	for r := range rows {
		rows[r] = Bytes(t.RowRange(r, r+1))
	}
	return rows
}
