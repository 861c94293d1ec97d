package stages

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// A rank of a tensor group has a slice of a hidden matrix, and with ZeRO only a part of that, but Muon makes whole matrices
// orthogonal. So each parameter with such matrices has a home: the rank that does it. The other ranks send their parts of what is to
// be made orthogonal there and get theirs of the result back.
//
// All else of an update works on one element at a time, so the momentum, the gradient and the weight stay where they are. Replicas
// have equal parts of them as with AdamW: ZeRO-2 and 3, checkpoints and memory know nothing of homes, and the sums of gradients still
// begin during the last backward. A home with the whole momentum would receive whole sums instead. That would save what is sent for
// the second time, which is one part of as many as there are replicas, in each direction.
//
// The home computes what a rank with whole matrices computes, from the same numbers. So ZeRO changes no bit.

// homeRound has parameters of which each rank is the home of one at most, with all their matrices. A round ends for all its ranks
// at once, so those of a round should take equally long.
type homeRound struct {
	all          []*localParam // by home: see homeRound.at
	data, tensor int           // the ranks that share each of them: replicas, and ranks of the tensor group
	divided      bool          // an expert group divides them, so the replicas are the ranks with the same experts
}

// at returns the parameter of a home; nil: it has none in this round.
func (r homeRound) at(replica, tensor int) *localParam {
	if i := replica*r.tensor + tensor; i < len(r.all) {
		return r.all[i]
	}
	return nil
}

// inTensor reports whether the ranks of a tensor group have slices of a parameter, some of them perhaps the same one.
func (s *Stage) inTensor(p *Param) bool { return s.opts.Tensor.size() > 1 && p.Split.Units > 0 }

// homed reports whether a parameter has a home: Muon updates it, and this rank has only a part of it.
func (s *Stage) homed(h *localParam) bool {
	return !h.param.Frozen && h.own.byMuon(h.param) && (s.splits(h.param) || s.inTensor(h.param))
}

// layHomes deals the parameters that have homes to the ranks: those with the most operations first, then those with the most
// elements, then by name. So the ranks of a round compute about equally long, and the first rank has the most operations: more than each
// other rank by one parameter at most. Which rank takes the most memory depends on the shapes.
func (s *Stage) layHomes() {
	deal := func(hs []*localParam, divided bool, tensor int) {
		data := 1
		if s.splits(hs[0].param) { // all of them do, or none
			_, data = s.copyOf(hs[0].param)
		}
		slices.SortFunc(hs, func(a, b *localParam) int {
			n, m := elements(a.param.groupShape()), elements(b.param.groupShape())
			return cmp.Or(cmp.Compare(b.param.Hidden.operations(m), a.param.Hidden.operations(n)), cmp.Compare(m, n),
				cmp.Compare(a.param.Name, b.param.Name))
		})
		for some := range slices.Chunk(hs, data*tensor) {
			s.homes = append(s.homes, homeRound{some, data, tensor, divided})
		}
	}
	for _, divided := range []bool{false, true} {
		for _, tensor := range []int{s.opts.Tensor.size(), 1} { // cut over the tensor group, or only over replicas
			var hs []*localParam
			for _, h := range s.local {
				if s.homed(h) && s.divided(h.param) == divided && s.inTensor(h.param) == (tensor > 1) {
					hs = append(hs, h)
				}
			}
			if len(hs) > 0 {
				deal(hs, divided, tensor)
			}
			if tensor == 1 {
				break // there is no tensor group
			}
		}
	}
}

// UpdateKind is equal for replicas whose updates by Muon take the same memory: they have parts of the same lengths, and are homes of
// matrices of the same shapes. expertCopy is the replica's place among those with the same experts.
func (s *Stage) UpdateKind(replica, expertCopy int) string {
	var kind []byte
	add := func(all ...int) {
		for _, n := range all {
			kind = binary.AppendUvarint(kind, uint64(n))
		}
	}
	rank := func(divided bool) int {
		if divided {
			return expertCopy
		}
		return replica
	}
	for _, h := range s.local {
		if s.splits(h.param) {
			from, to := s.partOf(h.param, rank(s.divided(h.param)))
			add(to - from)
		}
	}
	for _, r := range s.homes {
		home := 0
		if r.data > 1 {
			home = rank(r.divided)
		}
		for t := range r.tensor {
			h := r.at(home, t)
			if h == nil {
				add(0)
				continue
			}
			whole := h.param.groupShape()
			add(h.param.Hidden.Out, h.param.Hidden.In, len(whole))
			add(whole...)
			add(h.param.Shape...)
		}
	}
	return string(kind)
}

// operations returns the number of multiplications of a step that makes all matrices of a parameter of n elements orthogonal.
func (m *Matrices) operations(n int) int {
	small, large := min(m.Out, m.In), max(m.Out, m.In)
	return n / (small * large) * (2*small*small*large + small*small*small)
}

// updateAtHomes records the update of the parameters that have homes; with clear it also clears whole gradients.
func (s *Stage) updateAtHomes(l *tensorops.List, u Update, clear bool) {
	for _, r := range s.homes {
		s.updateRound(l, r, u, clear)
	}
}

func (s *Stage) updateRound(l *tensorops.List, r homeRound, u Update, clear bool) {
	replica, place := 0, 0
	if r.data > 1 {
		replica = s.copiesIn(r.divided).Rank()
	}
	if r.tensor > 1 {
		place = s.opts.Tensor.rank()
	}
	// By place in the tensor group: this rank's slice of the parameter whose home is there, in this rank's replica. First of what is
	// to be made orthogonal, then of the result.
	mine := make([]tensorops.Tensor, r.tensor)
	for t := range mine {
		if h := r.at(replica, t); h != nil {
			mine[t] = l.Alloc(tensorops.Float32, h.param.Shape...)
		}
	}
	s.gatherParts(l, r, replica, u, mine)
	h, x := r.at(replica, place), mine[place]
	if r.tensor > 1 {
		x = s.gatherSlices(l, r, h, mine)
	}
	if h != nil {
		x = l.Orthogonal(x, s.muonOpts(u, h))
	}
	if r.tensor > 1 {
		s.scatterSlices(l, r, h, x, mine)
	} else {
		mine[place] = x
	}
	s.scatterParts(l, r, replica, mine, u, clear)
	for _, t := range mine {
		l.Free(t)
	}
}

// exchange records that each member of a group gets a row from this rank, which put fills as far as it is used, and that take reads the
// rows from all members.
func exchange(l *tensorops.List, g tensorops.Group, each int, put, take func(member int, row tensorops.Tensor)) {
	out := l.Alloc(tensorops.Float32, g.Size(), each)
	in := l.Alloc(tensorops.Float32, g.Size(), each)
	for i := range g.Size() {
		put(i, out.RowRange(i, i+1))
	}
	l.AllToAll(in, out, g)
	l.Free(out)
	for i := range g.Size() {
		take(i, in.RowRange(i, i+1))
	}
	l.Free(in)
}

// gatherParts records the new momentum of this rank's part of each parameter of a round, and fills the slices of its replica.
func (s *Stage) gatherParts(l *tensorops.List, r homeRound, replica int, u Update, mine []tensorops.Tensor) {
	if r.data == 1 {
		for t, to := range mine {
			if h := r.at(replica, t); h != nil {
				s.muonMomentum(l, u, h, to)
			}
		}
		return
	}
	each := s.longestPart(r)
	exchange(l, s.copiesIn(r.divided), each*r.tensor, func(home int, row tensorops.Tensor) {
		for t := range mine {
			if h := r.at(home, t); h != nil && s.hasPart(h.param) {
				from, to := s.ownPart(h.param)
				s.muonMomentum(l, u, h, within(row, t*each, t*each+to-from))
			}
		}
	}, func(other int, row tensorops.Tensor) { s.eachOwnPart(l, r, replica, other, row, mine, false) })
}

// scatterParts records the new weights of this rank's part of each parameter of a round, from the results of its replica.
func (s *Stage) scatterParts(l *tensorops.List, r homeRound, replica int, mine []tensorops.Tensor, u Update, clear bool) {
	if r.data == 1 {
		for t, x := range mine {
			if h := r.at(replica, t); h != nil {
				s.muonStep(l, u, h, x, clear)
			}
		}
		return
	}
	each := s.longestPart(r)
	exchange(l, s.copiesIn(r.divided), each*r.tensor, func(other int, row tensorops.Tensor) {
		s.eachOwnPart(l, r, replica, other, row, mine, true)
	}, func(home int, row tensorops.Tensor) {
		for t := range mine {
			if h := r.at(home, t); h != nil && s.hasPart(h.param) {
				from, to := s.ownPart(h.param)
				s.muonStep(l, u, h, within(row, t*each, t*each+to-from), clear)
			}
		}
	})
}

// eachOwnPart records copies of another replica's parts of this replica's slices: into a row, or out of it.
func (s *Stage) eachOwnPart(l *tensorops.List, r homeRound, replica, other int, row tensorops.Tensor, mine []tensorops.Tensor, toRow bool) {
	each := s.longestPart(r)
	for t, x := range mine {
		h := r.at(replica, t)
		if h == nil {
			continue
		}
		from, to := s.partOf(h.param, other)
		if from == to {
			continue
		}
		dst, src := within(x, from, to), within(row, t*each, t*each+to-from)
		if toRow {
			dst, src = src, dst
		}
		l.Copy(dst, src)
	}
}

// gatherSlices records the exchange of slices in the tensor group. It takes them, and returns the whole of h if this rank is its home.
func (s *Stage) gatherSlices(l *tensorops.List, r homeRound, h *localParam, mine []tensorops.Tensor) (x tensorops.Tensor) {
	if h != nil {
		x = l.Alloc(tensorops.Float32, h.param.groupShape()...)
	}
	exchange(l, s.opts.Tensor.Group, r.longestSlice(), func(home int, row tensorops.Tensor) {
		if part := mine[home]; part.Valid() {
			l.Copy(within(row, 0, part.Len()), within(part, 0, part.Len()))
		}
	}, func(other int, row tensorops.Tensor) {
		if h != nil {
			part, flat := r.sliceOf(h.param, other, x, row)
			l.Copy(part, flat)
		}
	})
	return x
}

// scatterSlices records the way back. It takes the whole of h.
func (s *Stage) scatterSlices(l *tensorops.List, r homeRound, h *localParam, x tensorops.Tensor, mine []tensorops.Tensor) {
	exchange(l, s.opts.Tensor.Group, r.longestSlice(), func(other int, row tensorops.Tensor) {
		if h != nil {
			part, flat := r.sliceOf(h.param, other, x, row)
			l.Copy(flat, part)
		}
	}, func(home int, row tensorops.Tensor) {
		if part := mine[home]; part.Valid() {
			l.Copy(within(part, 0, part.Len()), within(row, 0, part.Len()))
		}
	})
	l.Free(x)
}

// sliceOf returns views of a rank's slice of a parameter, in the whole and in a row, as matrices of one shape.
func (r homeRound) sliceOf(p *Param, rank int, x, row tensorops.Tensor) (part, flat tensorops.Tensor) {
	whole := p.groupShape()
	c := p.Split.Slice(whole, rank, r.tensor)
	inner := elements(whole[c.Dim+1:])
	width, rows := (c.To-c.From)*inner, elements(whole[:c.Dim])*c.Sections
	part = x.View(rows, elements(whole)/rows).Columns(c.From*inner, c.To*inner)
	return part, row.Part(0, rows, width)
}

// longestSlice returns the number of elements of the longest slice of a rank in the round.
func (r homeRound) longestSlice() (most int) {
	for _, h := range r.all {
		for rank := range r.tensor {
			whole := h.param.groupShape()
			most = max(most, elements(h.param.Split.Slice(whole, rank, r.tensor).Shape(whole)))
		}
	}
	return most
}

// longestPart returns the number of elements of the longest part of a replica in the round.
func (s *Stage) longestPart(r homeRound) (most int) {
	for _, h := range r.all {
		most = max(most, s.partLen(h.param))
	}
	return most
}

// hasPart reports whether this rank has any element of a parameter's part of the optimizer state.
func (s *Stage) hasPart(p *Param) bool {
	from, to := s.ownPart(p)
	return from < to
}

// muonMomentum records the new momentum of what this rank has of a parameter, and fills its part of what is to be made orthogonal.
func (s *Stage) muonMomentum(l *tensorops.List, u Update, h *localParam, to tensorops.Tensor) {
	_, g := s.updated(h)
	o, m := s.muonOpts(u, h), h.state[0]
	if m.DType() == tensorops.Float32 {
		l.Nesterov(to, m, g, o)
		return
	}
	part, wide := h.own.moments(h.param)[0], l.Alloc(tensorops.Float32, m.Shape()...)
	s.widen(l, h, 0, part, 0, wide)
	l.Nesterov(to, wide, g, o)
	s.narrow(l, h, 0, part, 0, wide, uint64(u.Count))
}

// muonStep records the new weights of what this rank has of a parameter, from its part of the orthogonal matrices.
func (s *Stage) muonStep(l *tensorops.List, u Update, h *localParam, x tensorops.Tensor, clear bool) {
	w, g := s.updated(h)
	o := s.muonOpts(u, h)
	if s.splits(h.param) {
		l.MuonStep(w, x, o)
		s.average(l, h, w)
		s.gatherOwn(l, h)
		return
	}
	o.Copy = h.low
	l.MuonStep(w, x, o)
	s.average(l, h, w)
	if clear && !h.brief {
		l.Fill(g, 0)
	}
}
