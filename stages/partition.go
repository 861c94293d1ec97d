package stages

import "github.com/troupe-ml/troupe/tensorops"

// partition says how the ranks with the same numbers of a parameter divide them. Each rank computes the norm of its part and, under
// ZeRO, updates it. The elements are in sections of equal length. Equally many consecutive ranks share a section, in parts of each
// elements; those at the section's end may have fewer, or none.
//
// Most parameters are one section. Of experts there are as many as the largest possible expert group has ranks. So the whole matrices
// of experts have the same parts whatever the size of the groups, and with or without ZeRO, and the sum of their norms the same bits.
type partition struct {
	sections, section int // section: elements of one
	ranks             int // of a section
	each              int // elements of a part
}

// partition returns that of what this rank has of a parameter.
func (s *Stage) partition(p *Param) partition {
	_, size := s.copyOf(p)
	n := s.sections(p)
	x := partition{sections: n, section: p.Len() / n, ranks: size / n}
	x.each = (x.section + x.ranks - 1) / x.ranks
	if s.blockedState() {
		// Blocks of the optimizer state are whole in a part, also without ZeRO: the norms have the same parts.
		x.each = tensorops.StateScales(x.each) * tensorops.StateBlock
	}
	return x
}

// sections returns the number of sections of what this rank has of a parameter.
func (s *Stage) sections(p *Param) int {
	if !p.experts || s.blockedState() { // blocks continue from one expert to the next, so expert groups refuse them
		return 1
	}
	a, b := s.opts.Data.size(), p.Whole[0]
	if s.opts.wholeExperts() {
		a *= s.opts.Tensor.size()
	}
	for b > 0 {
		a, b = b, a%b
	}
	return a / s.opts.Experts.size()
}

// even reports whether all parts are of equal length.
func (x partition) even() bool { return x.ranks*x.each == x.section }

// gaps reports whether a row for each rank, as long as the longest part, would leave gaps between the elements of the parameter, and not
// only at its end.
func (x partition) gaps() bool { return x.sections > 1 && !x.even() }

// eachSection calls f with the first element of each section, and with its place among rows of the longest part.
func (x partition) eachSection(f func(at, padded int)) {
	for i := range x.sections {
		f(i*x.section, i*x.ranks*x.each)
	}
}

// of returns the range [from, to) of a rank's part.
func (x partition) of(rank int) (from, to int) {
	first, at := rank/x.ranks*x.section, rank%x.ranks*x.each
	return first + min(at, x.section), first + min(at+x.each, x.section)
}

// ownPart returns the range [from, to) of a parameter's elements whose norm this rank computes, and
// that it updates under ZeRO. Each rank has its share of each parameter, so the sum of all norms
// does not depend on where the parameter is. Without replicas the range covers all elements.
func (s *Stage) ownPart(p *Param) (from, to int) {
	rank, _ := s.copyOf(p)
	return s.partOf(p, rank)
}

func (s *Stage) partOf(p *Param, rank int) (from, to int) { return s.partition(p).of(rank) }

// partLen returns the number of elements of the longest part.
func (s *Stage) partLen(p *Param) int { return s.partition(p).each }

// splits reports whether this rank has only its part of a parameter's optimizer state.
func (s *Stage) splits(p *Param) bool {
	_, size := s.copyOf(p)
	return s.opts.Data.splits() && size > 1
}

// blockedState reports whether the numbers of the optimizer state have a scale for each block.
func (s *Stage) blockedState() bool { return s.opts.Optimizer.State == tensorops.Uint8 }
