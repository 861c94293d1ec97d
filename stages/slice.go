package stages

import (
	"fmt"
	"slices"
	"sync"
)

// Split is the rule by which tensor parallelism cuts a parameter. The zero value: every rank has
// the whole parameter.
type Split struct {
	Dim int // the dimension that is cut
	// Sections is the number of equal parts of that dimension, each of which is cut: 3 for one
	// projection to q, k and v.
	Sections int
	// Units is the number of indivisible units of a section, such as heads. A rank gets the same
	// number as the others, or one more. If there are fewer units than ranks, several ranks have
	// the same unit.
	Units int
}

// replicas returns how many ranks have the same slice; 1 if all slices differ.
func (s Split) replicas(size int) int {
	if s.Units == 0 || s.Units >= size {
		return 1
	}
	return size / s.Units
}

// Slice returns a rank's part of a parameter of this shape.
func (s Split) Slice(shape []int, rank, size int) Slice {
	if s.Units == 0 || size <= 1 {
		return Slice{}
	}
	unit := shape[s.Dim] / s.Sections / s.Units
	from := s.Units * rank / size
	to := max(from+1, s.Units*(rank+1)/size)
	return Slice{Dim: s.Dim, Sections: s.Sections, From: from * unit, To: to * unit}
}

// Slice is a part of a tensor. Dimension Dim consists of equal Sections; the part has the elements
// [From, To) of each of them, one section after the other. With 0 Sections it has all elements. If
// Limit is not 0, the part is reduced to the elements [First, Limit) of these, in order, in one
// dimension. The zero value is the whole tensor.
type Slice struct {
	Dim, Sections int
	From, To      int
	First, Limit  int
}

func (s Slice) whole() bool { return s == Slice{} }

// Range returns the elements [first, limit) of the slice.
func (s Slice) Range(first, limit int) Slice {
	s.First, s.Limit = first, limit
	return s
}

// Shape returns the shape of the part, for a tensor of shape whole.
func (s Slice) Shape(whole []int) []int {
	if s.Limit > 0 {
		return []int{s.Limit - s.First}
	}
	return s.cut(whole)
}

// cut returns the shape after the cut along the dimension.
func (s Slice) cut(whole []int) []int {
	if s.Sections == 0 {
		return whole
	}
	shape := slices.Clone(whole)
	shape[s.Dim] = s.Sections * (s.To - s.From)
	return shape
}

// Runs calls f for each run of n elements that are contiguous in both: they start at index at of
// the part and at index wholeAt of the whole. The runs come in the part's order.
func (s Slice) Runs(whole []int, f func(at, wholeAt, n int)) {
	if s.Limit > 0 {
		first, limit := s.First, s.Limit
		s.Range(0, 0).Runs(whole, func(at, wholeAt, n int) {
			if from, to := max(at, first), min(at+n, limit); from < to {
				f(from-first, wholeAt+from-at, to-from)
			}
		})
		return
	}
	if s.Sections == 0 {
		f(0, 0, elements(whole))
		return
	}
	inner := elements(whole[s.Dim+1:])
	section, n, at := whole[s.Dim]/s.Sections, (s.To-s.From)*inner, 0
	for outer := range elements(whole[:s.Dim]) {
		for k := range s.Sections {
			f(at, ((outer*s.Sections+k)*section+s.From)*inner, n)
			at += n
		}
	}
}

// check compares the slice with the whole's shape and the number of the part's elements.
func (s Slice) check(whole []int, n, all int) error {
	cut := s
	cut.First, cut.Limit = 0, 0
	if !cut.whole() && (s.Dim < 0 || s.Dim >= len(whole) || s.Sections < 1 || whole[s.Dim]%s.Sections != 0 ||
		s.From < 0 || s.To < s.From || s.To > whole[s.Dim]/s.Sections) ||
		(s.First != 0 || s.Limit != 0) && (s.First < 0 || s.First >= s.Limit || s.Limit > elements(s.cut(whole))) {
		return fmt.Errorf("%w: impossible slice %+v of a tensor of shape %v", ErrInput, s, whole)
	}
	if all != elements(whole) || n != elements(s.Shape(whole)) {
		return fmt.Errorf("%w: slice %+v of shape %v has %d numbers and the whole tensor %d, but got %d and %d", ErrInput, s, whole,
			elements(s.Shape(whole)), elements(whole), n, all)
	}
	return nil
}

// Take copies the part out of the whole, a tensor of the given shape.
func (s Slice) Take(part, whole []float32, shape []int) error {
	if err := s.check(shape, len(part), len(whole)); err != nil {
		return err
	}
	s.Runs(shape, func(at, wholeAt, n int) { copy(part[at:at+n], whole[wholeAt:]) })
	return nil
}

// Put copies the part into its place in the whole, a tensor of the given shape.
func (s Slice) Put(whole, part []float32, shape []int) error {
	if err := s.check(shape, len(part), len(whole)); err != nil {
		return err
	}
	s.Runs(shape, func(at, wholeAt, n int) { copy(whole[wholeAt:wholeAt+n], part[at:]) })
	return nil
}

// PutNarrow is Put for numbers of size bytes each.
func (s Slice) PutNarrow(whole, part []byte, size int, shape []int) error {
	if len(part)%size != 0 || len(whole)%size != 0 {
		return fmt.Errorf("%w: got %d and %d bytes of numbers of %d bytes", ErrInput, len(part), len(whole), size)
	}
	if err := s.check(shape, len(part)/size, len(whole)/size); err != nil {
		return err
	}
	s.Runs(shape, func(at, wholeAt, n int) { copy(whole[size*wholeAt:size*(wholeAt+n)], part[size*at:]) })
	return nil
}

// Sliced returns a Source for ranks with parts of tensors, given a source that has whole tensors
// only. It keeps a tensor of which more is read soon.
func Sliced(src Source) Source {
	var (
		mu   sync.Mutex
		kept = make(map[string][]float32)
	)
	return func(p *Param, part string, dst []float32) error {
		if p.Slice.whole() {
			return src(p, part, dst)
		}
		name := partName(part, p.Name)
		mu.Lock()
		all := kept[name]
		mu.Unlock()
		if all == nil {
			whole := *p
			whole.Shape, whole.Slice = p.Whole, Slice{}
			all = make([]float32, whole.Len())
			if err := src(&whole, part, all); err != nil {
				return err
			}
		}
		mu.Lock()
		if p.more {
			kept[name] = all
		} else {
			delete(kept, name)
		}
		mu.Unlock()
		return p.Slice.Take(dst, all, p.Whole)
	}
}
