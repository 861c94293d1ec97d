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
	To    int  // who it is for, of those that TiedGrads was given
	Uses  Uses // that it is of
	First int  // row of the whole weight that it begins with
	// Those rows of the weight that both ranks have; where the receiver has to add several uses one by one,
	// with the rows of each one after the other.
	Grad tensorops.Tensor
}

// TensorPlace is that of a rank in its tensor group.
type TensorPlace struct{ Rank, Size int }

// rows are those of the whole that a rank has of a parameter which is used in several places.
func (p *Param) rowsAt(at TensorPlace) (first, limit int) {
	if s := p.Split.Slice(p.Whole, at.Rank, at.Size); !s.whole() && s.Dim == 0 {
		return s.From, s.To
	}
	return 0, p.Whole[0]
}

// firstRow is the row of the whole that this rank's part begins with.
func (h *localParam) firstRow() int {
	if s := h.param.Slice; !s.whole() && s.Dim == 0 {
		return s.From
	}
	return 0
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
// for each of those that have rows of it that this rank has.
func (s *Stage) TiedGrads(l *tensorops.List, to []TensorPlace) []TiedGrad {
	var out []TiedGrad
	for _, h := range s.local {
		if !h.shared {
			continue
		}
		h.reduce(l)
		own := h.firstRow()
		for i, at := range to {
			first, limit := h.param.rowsAt(at)
			if first, limit = max(first, own), min(limit, own+h.param.Shape[0]); first < limit {
				out = append(out, TiedGrad{Param: h.param.Index, To: i, Uses: h.here, First: first, Grad: h.copyParts(l, first-own, limit-own)})
			}
		}
	}
	return out
}

// copyParts records a copy of some rows of this rank's parts.
func (h *localParam) copyParts(l *tensorops.List, first, limit int) tensorops.Tensor {
	localParts, rows, cols := parts(h.here), h.param.Shape[0], h.param.Shape[1]
	n := limit - first
	g := l.Alloc(tensorops.Float32, len(localParts)*n, cols)
	for i, place := range localParts {
		part := g.RowRange(i*n, (i+1)*n)
		switch by := h.rows[place]; {
		case by != nil && n == rows:
			l.Fill(part, 0)
			by.addTo(l, part)
		case by != nil:
			all := l.Alloc(tensorops.Float32, rows, cols)
			l.Fill(all, 0)
			by.addTo(l, all)
			l.Copy(part, all.RowRange(first, limit))
			l.Free(all)
		default:
			l.Copy(part, h.g[place].RowRange(first, limit))
		}
	}
	return g
}

// rowsOf are the rows of a rank's part that a gradient is of.
func (h *localParam) rowsOf(g TiedGrad) (first, limit int) {
	first = g.First - h.firstRow()
	return first, first + g.Grad.Dim(0)/len(parts(g.Uses))
}

// fits reports whether a gradient is of uses that other ranks have, and of rows that have not come
// yet, all uses of one rank in one tensor.
func (h *localParam) fits(g TiedGrad) bool {
	any := false
	for place, used := range g.Uses {
		if used && (!h.param.places[place] || h.here[place]) {
			return false
		}
		any = any || used
	}
	if !any || !g.Grad.Valid() || g.Grad.Rank() != 2 || g.Grad.Dim(0)%len(parts(g.Uses)) != 0 || g.Grad.Dim(1) != h.param.Shape[1] {
		return false
	}
	first, limit := h.rowsOf(g)
	if first < 0 || first >= limit || limit > h.param.Shape[0] {
		return false
	}
	for _, o := range h.others {
		for place, used := range g.Uses {
			if used && o.Uses[place] && (o.Uses != g.Uses || h.overlap(o, first, limit)) {
				return false
			}
		}
	}
	return true
}

// overlap reports whether a gradient that has come is of some of these rows.
func (h *localParam) overlap(o TiedGrad, first, limit int) bool {
	from, to := h.rowsOf(o)
	return from < limit && first < to
}

// missing are the uses elsewhere of which gradients have not come, of some rows or of all.
func (h *localParam) missing() Uses {
	missing := Uses(h.param.places)
	for place := range missing {
		rows := 0
		for _, o := range h.others {
			if o.Uses[place] {
				from, to := h.rowsOf(o)
				rows += to - from
			}
		}
		missing[place] = missing[place] && !h.here[place] && rows < h.param.Shape[0]
	}
	return missing
}

// joinOthers makes one gradient of those that came in rows from several ranks. No rows are missing.
func (h *localParam) joinOthers(l *tensorops.List) {
	if len(h.others) == 0 {
		return
	}
	rows, cols := h.param.Shape[0], h.param.Shape[1]
	var whole []TiedGrad
	for _, o := range h.others {
		n := len(parts(o.Uses))
		first, limit := h.rowsOf(o)
		if limit-first == rows {
			whole = append(whole, o)
			continue
		}
		i := slices.IndexFunc(whole, func(w TiedGrad) bool { return w.Uses == o.Uses })
		if i < 0 {
			i = len(whole)
			whole = append(whole, TiedGrad{Param: o.Param, Uses: o.Uses, First: h.firstRow(), Grad: l.Alloc(tensorops.Float32, n*rows, cols)})
		}
		for k := range n {
			l.Copy(whole[i].Grad.RowRange(k*rows+first, k*rows+limit), o.Grad.RowRange(k*(limit-first), (k+1)*(limit-first)))
		}
		l.Free(o.Grad)
	}
	h.others = whole
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
	h.joinOthers(l)
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

// MissingTied makes gradients in the place of those that other ranks would send, so that the end of a step can be
// recorded without them, in a dry run.
func (s *Stage) MissingTied(l *tensorops.List) []TiedGrad {
	var all []TiedGrad
	for _, h := range s.local {
		if uses := h.missing(); h.shared && uses != (Uses{}) {
			all = append(all, TiedGrad{Param: h.param.Index, Uses: uses, First: h.firstRow(),
				Grad: l.Alloc(tensorops.Float32, len(parts(uses))*h.param.Shape[0], h.param.Shape[1])})
		}
	}
	return all
}
