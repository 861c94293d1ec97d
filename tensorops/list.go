package tensorops

import "fmt"

// List records operations for one stream. Its methods check shapes and types. The first error is
// kept, and everything recorded after it is ignored, so a caller checks for errors once, on
// completion.
type List struct {
	ops     []Op
	away    []Tensor // buffers of other pools, released on completion
	arena   Arena
	hold    uint64          // the pool's number for the list while it is not complete
	element func(DType) int // bytes of a stored element on this device
	begun   int             // collectives that Begin has started
	open    []int           // numbers of those that nothing waits for yet
	err     error
	sink    Op // dummy for operations recorded after an error
}

// NewList makes a list over an arena; it is for devices. elementBytes may be nil if the device
// stores every type in its own size.
func NewList(arena Arena, elementBytes func(DType) int) *List {
	if elementBytes == nil {
		elementBytes = DType.Size
	}
	return &List{arena: arena, element: elementBytes}
}

// Err returns the first error of recording.
func (l *List) Err() error { return l.err }

// Ops returns the recorded operations, for the device.
func (l *List) Ops() []Op { return l.ops }

// Reset empties the list for reuse and keeps its memory. It is for devices, after Complete.
func (l *List) Reset() {
	clear(l.ops)
	l.ops, l.away, l.begun, l.open, l.err = l.ops[:0], l.away[:0], 0, l.open[:0], nil
}

// Complete releases the buffers of other pools that the list freed. The device calls it when the
// last operation has finished, before it reports completion.
func (l *List) Complete() {
	for i, t := range l.away {
		t.buf.Home.Put(t.buf)
		l.away[i] = Tensor{}
	}
	l.away = l.away[:0]
}

// Fail makes the list fail with an error of the caller.
func (l *List) Fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Alloc allocates a tensor from the stream's pool; its contents are undefined. After an error it
// returns an invalid tensor.
func (l *List) Alloc(dtype DType, dims ...int) Tensor {
	if l.err != nil {
		return Tensor{}
	}
	t, err := newTensor(l.arena, dtype, l.element(dtype), dims)
	if err != nil {
		l.err = fmt.Errorf("alloc: %w", err)
	}
	return t
}

// AllocLike allocates a tensor of t's type and shape.
func (l *List) AllocLike(t Tensor) Tensor {
	if l.err != nil {
		return Tensor{}
	}
	if !t.Valid() {
		l.err = fmt.Errorf("%w: AllocLike of an invalid tensor", ErrShape)
		return Tensor{}
	}
	return l.Alloc(t.dtype, t.Shape()...)
}

// Free frees the buffer of a tensor in stream order: operations recorded before may still use it,
// later ones may reuse its memory. Freeing an invalid tensor does nothing; freeing a buffer twice
// panics.
func (l *List) Free(t Tensor) {
	if t.buf == nil {
		return
	}
	if t.buf.free.Swap(true) {
		panic(fmt.Sprintf("tensorops: the buffer of %v is freed twice", t))
	}
	if t.buf.Home == l.arena {
		t.buf.Home.Put(t.buf)
		return
	}
	l.away = append(l.away, t)
}

// op appends an operation. After an error it returns a dummy, so that recording methods need not
// check.
func (l *List) op(k Kind) *Op {
	if l.err != nil {
		l.sink = Op{Kind: k}
		return &l.sink
	}
	if len(l.ops) < cap(l.ops) {
		l.ops = l.ops[:len(l.ops)+1]
	} else {
		l.ops = append(l.ops, Op{})
	}
	o := &l.ops[len(l.ops)-1]
	o.Kind = k
	return o
}

// need fails the list if an operation's operands don't fit. The message lists all of them; why says
// what must hold.
func (l *List) need(o *Op, cond bool, why string) {
	if l.err == nil && !cond {
		l.err = fmt.Errorf("%w: %v: %s", ErrShape, o, why)
	}
}

// dense reports whether all are contiguous tensors of a type.
func dense(d DType, ts ...Tensor) bool {
	for _, t := range ts {
		if !t.Valid() || t.dtype != d || !t.Contiguous() {
			return false
		}
	}
	return true
}

// float reports whether all are float32 tensors, contiguous or not.
func float(ts ...Tensor) bool {
	for _, t := range ts {
		if !t.Valid() || t.dtype != Float32 {
			return false
		}
	}
	return true
}

// either reports whether each is a float32 or bfloat16 tensor, contiguous or not.
func either(ts ...Tensor) bool {
	for _, t := range ts {
		if !t.Valid() || t.dtype != Float32 && t.dtype != BFloat16 {
			return false
		}
	}
	return true
}

// denseEither reports whether each is a contiguous tensor of float32 or bfloat16.
func denseEither(ts ...Tensor) bool {
	for _, t := range ts {
		if !t.Contiguous() {
			return false
		}
	}
	return either(ts...)
}

// sameLen reports whether all have the same number of elements.
func sameLen(ts ...Tensor) bool {
	for _, t := range ts[1:] {
		if t.Len() != ts[0].Len() {
			return false
		}
	}
	return true
}

// sameMatrix reports whether two tensors have the same rows and columns.
func sameMatrix(a, b Tensor) bool { return a.Rows() == b.Rows() && a.Cols() == b.Cols() }

// optionalEither reports whether t is invalid or n contiguous elements of float32 or bfloat16.
func optionalEither(t Tensor, n int) bool { return !t.Valid() || denseEither(t) && t.Len() == n }

// optional reports whether t is invalid or n contiguous float32 elements.
func optional(t Tensor, n int) bool { return !t.Valid() || dense(Float32, t) && t.Len() == n }

// Replace replaces the list's error, for example with a more specific one.
func (l *List) Replace(err error) { l.err = err }
