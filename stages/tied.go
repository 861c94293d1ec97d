package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Uses are those of a weight on one rank: as the embedding's, for multi-token
// prediction, as the head's.
type Uses [numPlaces]bool

// TiedGrad is one rank's part of a tied weight's gradient, for another rank that uses the
// weight.
type TiedGrad struct {
	Param int
	Uses  Uses // that it is of
	// The weight's shape; where the receiver has to add several uses one by one,
	// with their rows one after the other.
	Grad tensorops.Tensor
}

// sumOrder is the order in which the gradients of a weight's uses are added, on
// every rank: ((head + multi-token prediction) + embedding). Addition does not
// associate, so that under another order the bits would follow from the layout. It
// does commute: which of two operands lies where makes no difference.
var sumOrder = [numPlaces]int{placeHead, placeMTP, placeOwn}

// parts lists the gradients that a rank with these uses sends, in the order of
// addition: the first two are one where it has both.
func parts(here Uses) []int {
	var out []int
	for _, place := range sumOrder {
		if here[place] && (place != placeMTP || !here[placeHead]) {
			out = append(out, place)
		}
	}
	return out
}

// place is the use whose gradient is whole and becomes the weight's. It comes first
// in the order of addition, so that what is by rows is added to it.
func (h *localParam) place() int {
	for _, place := range sumOrder {
		if h.here[place] {
			return place
		}
	}
	return placeOwn
}

// TiedGrads records copies of the gradients that other ranks need: of each parameter one
// for each of n ranks.
func (s *Stage) TiedGrads(l *tensorops.List, ranks int) []TiedGrad {
	var out []TiedGrad
	for _, h := range s.local {
		if !h.shared {
			continue
		}
		h.reduce(l)
		for range ranks {
			out = append(out, TiedGrad{h.param.Index, h.here, h.copyParts(l)})
		}
	}
	return out
}

// copyParts records a copy of this rank's parts.
func (h *localParam) copyParts(l *tensorops.List) tensorops.Tensor {
	localParts, rows := parts(h.here), h.param.Shape[0]
	g := l.Alloc(tensorops.Float32, len(localParts)*rows, h.param.Shape[1])
	for i, place := range localParts {
		part := g.RowRange(i*rows, (i+1)*rows)
		if by := h.rows[place]; by != nil {
			l.Fill(part, 0)
			by.addTo(l, part)
		} else {
			l.Copy(part, h.g[place])
		}
	}
	return g
}

// fits reports whether a gradient is of uses that other ranks have and that have not come
// yet, all of one rank in one tensor.
func (h *localParam) fits(g TiedGrad) bool {
	missing := h.missing()
	any := false
	for place, used := range g.Uses {
		if used && !missing[place] {
			return false
		}
		any = any || used
	}
	return any && g.Grad.Valid() && g.Grad.Rank() == 2 && g.Grad.Dim(0) == len(parts(g.Uses))*h.param.Shape[0] && g.Grad.Dim(1) == h.param.Shape[1]
}

// missing are the uses elsewhere whose gradients have not come.
func (h *localParam) missing() Uses {
	missing := Uses(h.param.places)
	for place := range missing {
		missing[place] = missing[place] && !h.here[place]
		for _, o := range h.others {
			missing[place] = missing[place] && !o.Uses[place]
		}
	}
	return missing
}

// reduce adds the first two uses where both are here.
func (h *localParam) reduce(l *tensorops.List) {
	if by := h.rows[placeMTP]; by != nil && h.here[placeHead] {
		by.addTo(l, h.g[placeHead])
		by.clear(l)
	}
}

// sum adds the gradients of all uses, in their order, to the one that becomes the
// weight's. Those of other ranks that come before it are added up where they lie.
func (h *localParam) sum(l *tensorops.List) {
	if h.shared && h.missing() != (Uses{}) {
		l.Fail(fmt.Errorf("%w: a gradient of %s from another rank has not come", ErrInput, h.param.Name))
		return
	}
	h.reduce(l)
	base := h.place()
	g := h.g[base]
	var sum tensorops.Tensor // so far
	for _, place := range sumOrder {
		other := h.otherPart(place)
		switch by := h.rows[place]; {
		case place == base:
			if sum.Valid() {
				l.Add(g, g, sum)
			}
			sum = g
		case by != nil:
			by.addTo(l, sum)
		case !other.Valid():
		case sum.Valid():
			l.Add(sum, sum, other)
		default:
			sum = other
		}
	}
	for i := range h.others {
		free(l, &h.others[i].Grad)
	}
	h.others = h.others[:0]
}

// otherPart is another rank's gradient of a use; none where it is within another part.
func (h *localParam) otherPart(place int) tensorops.Tensor {
	rows := h.param.Shape[0]
	for _, o := range h.others {
		if i := slices.Index(parts(o.Uses), place); i >= 0 {
			return o.Grad.RowRange(i*rows, (i+1)*rows)
		}
	}
	return tensorops.Tensor{}
}
