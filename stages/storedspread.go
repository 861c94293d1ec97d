package stages

// Runs calls f for runs of the parameter's elements [lo, hi), in ascending order: n elements from index param on, of which the first one is
// element tensor of the checkpoint's tensor, and each next one is step elements further. The part must have all of them.
func (s StoredPart) Runs(lo, hi int, f func(param, tensor, n, step int)) {
	if s.Strides == nil {
		f(lo, s.At+lo-s.First, hi-lo, 1)
		return
	}
	last := len(s.Dims) - 1
	for row := s.Dims[last]; lo < hi; {
		n := min(row-lo%row, hi-lo)
		f(lo, s.index(lo), n, s.Strides[last])
		lo += n
	}
}

// index returns the element of the tensor that is an element of the parameter.
func (s StoredPart) index(param int) int {
	at := s.At
	for d := len(s.Dims) - 1; d >= 0; d-- {
		at += param % s.Dims[d] * s.Strides[d]
		param /= s.Dims[d]
	}
	return at
}

// Place copies what a tensor has of a whole parameter to its places in it.
func Place[E any](s StoredPart, tensor, whole []E) {
	s.Runs(s.First, s.First+s.Len, func(param, at, n, step int) {
		for i, v := range whole[param : param+n] {
			tensor[at+i*step] = v
		}
	})
}

// The ends of the names of the tensors with numbers in MXFP4.
const (
	mxCodes  = "_blocks"
	mxScales = "_scales"
	// MXBlock is the number of elements with a common scale.
	MXBlock = 32
)

// MXFP4Tensors returns the two tensors of numbers in MXFP4, as published files of GPT-OSS have them. The codes of rows of the tensor's last
// dimension are in blocks of MXBlock numbers, two in a byte; a scale is a byte for each block. Both have type U8.
func (s StoredPart) MXFP4Tensors() (codes, scales string, codesShape, scalesShape []int) {
	last := len(s.Shape) - 1
	scalesShape = append(append([]int{}, s.Shape[:last]...), s.Shape[last]/MXBlock)
	return s.Name + mxCodes, s.Name + mxScales, append(append([]int{}, scalesShape...), MXBlock/2), scalesShape
}

// spread says that a parameter's elements are spread over a tensor of checkpoints.
func (p *Param) spread(name string, shape []int, at int, strides ...int) {
	p.Stored = Stored{Name: name, Shape: shape, At: at, Strides: strides}
}

// alsoIn says that files may have the parameter in another tensor than the usual ones.
func (p *Param) alsoIn(s StoredPart) {
	s.Len = elements(p.Whole)
	if s.Strides != nil {
		s.Dims = p.Whole
	}
	p.Other = &s
}
