package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Uses are the uses of a weight on one rank: by the embedding, by multi-token prediction, by the
// head.
type Uses [numPlaces]bool

// TiedGrad is one rank's part of a tied weight's gradient, for another rank that uses the weight.
type TiedGrad struct {
	Param int
	To    int  // index of the receiver among those passed to TiedGrads
	Uses  Uses // uses that it includes
	First int  // its first row of the whole weight
	// Grad holds the rows of the weight that both ranks have. If the receiver has to add several
	// uses separately, the rows of the uses follow one another.
	Grad tensorops.Tensor
}

// TensorPlace is a rank's place in its tensor group.
type TensorPlace struct{ Rank, Size int }

// rowsAt returns the rows of the whole that a rank has, of a parameter with several uses.
func (p *Param) rowsAt(at TensorPlace) (first, limit int) {
	if s := p.Split.Slice(p.Whole, at.Rank, at.Size); !s.whole() && s.Dim == 0 {
		return s.From, s.To
	}
	return 0, p.Whole[0]
}

// firstRow returns the first row of this rank's part in the whole.
func (h *localParam) firstRow() int {
	if s := h.param.Slice; !s.whole() && s.Dim == 0 {
		return s.From
	}
	return 0
}

// sumOrder is the order in which the gradients of a weight's uses are added, on every rank: ((head
// + multi-token prediction) + embedding). Floating-point addition is not associative, so with
// different orders the bits would depend on the layout. It is commutative: swapping two operands
// makes no difference.
var sumOrder = [numPlaces]int{placeHead, placeMTP, placeOwn}

// parts lists the gradients that a rank with these uses sends, in the order of addition: the first
// two as one if it has both.
func parts(here Uses) []int {
	var out []int
	for _, place := range sumOrder {
		if here[place] && (place != placeMTP || !here[placeHead]) {
			out = append(out, place)
		}
	}
	return out
}

// place returns the use whose gradient is whole and becomes the weight's. It comes first in the
// order of addition, so that row gradients are added to it.
func (h *localParam) place() int {
	for _, place := range sumOrder {
		if h.here[place] {
			return place
		}
	}
	return placeOwn
}

// TiedGrads records copies of the gradients that other ranks need: for each parameter, one for each
// rank that has rows which this rank has.
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

// rowsOf returns the rows of a rank's part to which a gradient belongs.
func (h *localParam) rowsOf(g TiedGrad) (first, limit int) {
	first = g.First - h.firstRow()
	return first, first + g.Grad.Dim(0)/len(parts(g.Uses))
}

// fits reports whether a gradient is of uses on other ranks, and of rows that have not arrived yet,
// with all uses of one rank in one tensor.
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

// overlap reports whether a gradient that has arrived covers some of these rows.
func (h *localParam) overlap(o TiedGrad, first, limit int) bool {
	from, to := h.rowsOf(o)
	return from < limit && first < to
}

// missing returns the uses on other ranks of which some or all rows of gradients have not arrived.
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

// joinOthers joins gradients that came in rows from several ranks. No rows are missing.
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

// reduce adds the first two uses if both are on this rank.
func (h *localParam) reduce(l *tensorops.List) {
	if by := h.rows[placeMTP]; by != nil && h.here[placeHead] {
		by.addTo(l, h.g[placeHead])
		by.clear(l)
	}
}

// sum adds the gradients of all uses, in order, to the one that becomes the weight's. Those of
// other ranks that come before it are added in their own memory.
func (h *localParam) sum(l *tensorops.List) {
	if h.shared && h.missing() != (Uses{}) {
		l.Fail(fmt.Errorf("%w: the gradient of %s from another rank has not arrived", ErrInput, h.param.Name))
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

// otherPart returns another rank's gradient of a use; invalid if it is included in another part.
func (h *localParam) otherPart(place int) tensorops.Tensor {
	rows := h.param.Shape[0]
	for _, o := range h.others {
		if i := slices.Index(parts(o.Uses), place); i >= 0 {
			return o.Grad.RowRange(i*rows, (i+1)*rows)
		}
	}
	return tensorops.Tensor{}
}

// MissingTied makes gradients in place of those that other ranks would send, so that the end of a
// step can be recorded in a dry run.
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
