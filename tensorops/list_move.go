package tensorops

import "time"

// Fill records t = value for every element. T: t. F: value.
func (l *List) Fill(t Tensor, value float64) {
	o := l.op(KindFill, t)
	o.F[0] = value
	l.need(o, t.Valid() && t.Contiguous(), "a contiguous tensor")
}

// Copy records dst = src, element by element; views of columns are allowed.
// T: dst, src.
func (l *List) Copy(dst, src Tensor) {
	l.need(l.op(KindCopy, dst, src), dst.Valid() && src.Valid() && dst.dtype == src.dtype && sameMatrix(dst, src), "the same type, rows and columns")
}

// Upload records a copy from host memory (see HostBytes). The bytes must stay
// untouched until completion. T: dst. Host: the bytes.
func (l *List) Upload(dst Tensor, host []byte) {
	o := l.op(KindUpload, dst)
	o.Host = host
	l.need(o, dst.Valid() && dst.Contiguous() && len(host) == dst.Len()*dst.dtype.Size(), "as many bytes as the tensor has")
}

// Fetch records a copy to host memory, there at completion. T: src. Host: the
// bytes.
func (l *List) Fetch(host []byte, src Tensor) {
	o := l.op(KindFetch, src)
	o.Host = host
	l.need(o, src.Valid() && src.Contiguous() && len(host) == src.Len()*src.dtype.Size(), "as many bytes as the tensor has")
}

// AllReduce records t = the sum of t over the group's members. T: t.
func (l *List) AllReduce(t Tensor, g Group) {
	o := l.op(KindAllReduce, t)
	o.Group = g
	l.need(o, t.Valid() && t.Contiguous() && g != nil, "a contiguous tensor and a group")
}

// Spin records an operation that keeps one core busy for a time: a stand-in for
// work of known length, to measure everything else. I: nanoseconds.
func (l *List) Spin(d time.Duration) {
	o := l.op(KindSpin)
	o.I[0] = int(d)
	l.need(o, d >= 0, "a time of 0 or more")
}
