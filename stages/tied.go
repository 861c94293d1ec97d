package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// TiedGrad is this rank's part of a tied weight's gradient, for the other rank that
// uses the weight.
type TiedGrad struct {
	Param int
	Place int // the use it comes from, the first one where several lie in Grad
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
func parts(here [numPlaces]bool) []int {
	var out []int
	for _, place := range sumOrder {
		if here[place] && (place != placeMTP || !here[placeHead]) {
			out = append(out, place)
		}
	}
	return out
}

// elsewhere are the uses that another rank has.
func (h *held) elsewhere() [numPlaces]bool {
	var out [numPlaces]bool
	for place, used := range h.param.places {
		out[place] = used && !h.here[place]
	}
	return out
}

// place is the use whose gradient is whole and becomes the weight's. It comes first
// in the order of addition, so that what is by rows is added to it.
func (h *held) place() int {
	for _, place := range sumOrder {
		if h.here[place] {
			return place
		}
	}
	return placeOwn
}

// TiedGrads records copies of the gradients that another rank needs.
func (s *Stage) TiedGrads(l *tensorops.List) []TiedGrad {
	var out []TiedGrad
	for _, h := range s.mine {
		if !h.shared {
			continue
		}
		h.fold(l)
		mine, rows := parts(h.here), h.param.Shape[0]
		g := l.Alloc(tensorops.Float32, len(mine)*rows, h.param.Shape[1])
		for i, place := range mine {
			part := g.RowRange(i*rows, (i+1)*rows)
			if by := h.rows[place]; by != nil {
				l.Fill(part, 0)
				by.addTo(l, part)
			} else {
				l.Copy(part, h.g[place])
			}
		}
		out = append(out, TiedGrad{h.param.Index, mine[0], g})
	}
	return out
}

// fits reports whether a gradient is what the other rank is to send.
func (h *held) fits(g TiedGrad) bool {
	theirs := parts(h.elsewhere())
	return len(theirs) > 0 && g.Place == theirs[0] && g.Grad.Valid() && g.Grad.Rank() == 2 &&
		g.Grad.Dim(0) == len(theirs)*h.param.Shape[0] && g.Grad.Dim(1) == h.param.Shape[1]
}

// fold adds the first two uses where both are here.
func (h *held) fold(l *tensorops.List) {
	if by := h.rows[placeMTP]; by != nil && h.here[placeHead] {
		by.addTo(l, h.g[placeHead])
		by.clear(l)
	}
}

// sum adds the gradients of all uses to the one that becomes the weight's.
func (h *held) sum(l *tensorops.List) {
	if h.shared && !h.other.Valid() {
		l.Fail(fmt.Errorf("%w: the gradient of %s from its other use has not come", ErrInput, h.param.Name))
		return
	}
	h.fold(l)
	base, theirs, rows := h.place(), parts(h.elsewhere()), h.param.Shape[0]
	g := h.g[base]
	for _, place := range sumOrder {
		if by := h.rows[place]; by != nil {
			by.addTo(l, g)
		} else if i := slices.Index(theirs, place); i >= 0 {
			l.Add(g, g, h.other.RowRange(i*rows, (i+1)*rows))
		}
	}
	free(l, &h.other)
}
