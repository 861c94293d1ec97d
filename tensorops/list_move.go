package tensorops

import "time"

// Fill records t = value for every element.
func (l *List) Fill(t Tensor, value float64) {
	o := l.op(KindFill)
	FillArgs{t, value}.Put(o)
	l.need(o, t.Valid() && t.Contiguous() && !t.dtype.Quantized(), "a contiguous tensor, not quantized")
}

// FillArgs are the operands of KindFill.
type FillArgs struct {
	T     Tensor
	Value float64
}

// Put stores the operands.
func (a FillArgs) Put(o *Op) {
	o.operands(a.T)
	o.F[0] = a.Value
}

// Fill reads the operands.
func (o *Op) Fill() FillArgs { return FillArgs{T: o.T[0], Value: o.F[0]} }

// Copy records dst = src, element by element; views of columns are allowed. The types must be
// equal, or float32 and bfloat16. One of them may be quantized instead: then the copy quantizes float32 or bfloat16
// into whole rows, or widens quantized numbers.
func (l *List) Copy(dst, src Tensor) {
	o := l.op(KindCopy)
	CopyArgs{dst, src}.Put(o)
	l.need(o, dst.Valid() && src.Valid() && copyTypes(dst, src) && sameMatrix(dst, src),
		"the same rows and columns, and the same type, or float32 and bfloat16, or one of these and whole quantized rows")
}

// copyTypes reports whether a copy converts between the types of two tensors.
func copyTypes(dst, src Tensor) bool {
	switch {
	case dst.dtype.Quantized():
		return either(src) && dst.Contiguous() && dst.wholeRows()
	case src.dtype.Quantized():
		return either(dst)
	}
	return dst.dtype == src.dtype || either(dst, src)
}

// wholeRows reports whether the rows of t are rows of its buffer, from their first element to their last.
func (t Tensor) wholeRows() bool {
	return t.Stride() == t.Cols() && (t.off == 0 || t.off%t.Stride() == 0)
}

// PeerCopy records dst = src, of the same type and shape. src may be in the memory of another
// device from which this one can copy; see Peer. The operations that compute src must be complete.
func (l *List) PeerCopy(dst, src Tensor) {
	o := l.op(KindPeerCopy)
	CopyArgs{dst, src}.Put(o)
	l.need(o, dst.Valid() && src.Valid() && dst.dtype == src.dtype && dst.SameShape(src) && dst.Contiguous() && src.Contiguous() &&
		!dst.dtype.Quantized(), "contiguous tensors of the same type and shape, not quantized")
}

// CopyArgs are the operands of KindCopy and KindPeerCopy.
type CopyArgs struct{ Dst, Src Tensor }

// Put stores the operands.
func (a CopyArgs) Put(o *Op) { o.operands(a.Dst, a.Src) }

// Copy reads the operands.
func (o *Op) Copy() CopyArgs { return CopyArgs{Dst: o.T[0], Src: o.T[1]} }

// Upload records a copy from host memory (see HostBytes). The bytes must not change until the list
// has completed.
func (l *List) Upload(dst Tensor, host []byte) {
	o := l.op(KindUpload)
	UploadArgs{dst, host}.Put(o)
	l.need(o, dst.Valid() && dst.Contiguous() && !dst.dtype.Quantized() && len(host) == dst.Len()*dst.dtype.Size(),
		"as many bytes as the tensor has, which is not quantized")
}

// UploadArgs are the operands of KindUpload.
type UploadArgs struct {
	Dst  Tensor
	Host []byte
}

// Put stores the operands.
func (a UploadArgs) Put(o *Op) {
	o.operands(a.Dst)
	o.Host = a.Host
}

// Upload reads the operands.
func (o *Op) Upload() UploadArgs { return UploadArgs{Dst: o.T[0], Host: o.Host} }

// Fetch records a copy to host memory; it is complete when the list is.
func (l *List) Fetch(host []byte, src Tensor) {
	o := l.op(KindFetch)
	FetchArgs{host, src}.Put(o)
	l.need(o, src.Valid() && src.Contiguous() && !src.dtype.Quantized() && len(host) == src.Len()*src.dtype.Size(),
		"as many bytes as the tensor has, which is not quantized")
}

// FetchArgs are the operands of KindFetch.
type FetchArgs struct {
	Host []byte
	Src  Tensor
}

// Put stores the operands.
func (a FetchArgs) Put(o *Op) {
	o.operands(a.Src)
	o.Host = a.Host
}

// Fetch reads the operands.
func (o *Op) Fetch() FetchArgs { return FetchArgs{Host: o.Host, Src: o.T[0]} }

// Spin records an operation that keeps one core busy for a given time: a stand-in for work of known
// duration, for measurements of everything else.
func (l *List) Spin(d time.Duration) {
	o := l.op(KindSpin)
	SpinArgs{d}.Put(o)
	l.need(o, d >= 0, "the time must be 0 or more")
}

// SpinArgs are the operands of KindSpin.
type SpinArgs struct{ Time time.Duration }

// Put stores the operands.
func (a SpinArgs) Put(o *Op) { o.I[0] = int(a.Time) }

// Spin reads the operands.
func (o *Op) Spin() SpinArgs { return SpinArgs{Time: time.Duration(o.I[0])} }
