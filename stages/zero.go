package stages

import "github.com/troupe-ml/troupe/tensorops"

// ZeRO-1: the replicas of a stage share the optimizer state. Each replica has the state of its part
// of every parameter. It gets the sum of that part's gradient and updates that part; then the
// replicas exchange their parts. Of the experts of an expert group, the ranks with the same ones do
// (Stage.copiesOf); a rank that alone has its experts updates them whole.
//
// A collective takes equal parts that lie one after the other. The parts of a large parameter whose
// length divides evenly already lie that way. Others are copied into an exchange buffer and out of
// it, as many at a time as fit: a bucket.

// partExchange is the memory through which parts are copied, of the parameters that an expert group divides or of all others.
type partExchange struct {
	divided        bool
	grads, weights [][]piece        // the buckets
	all            tensorops.Tensor // [elements, 1]: the buckets of all ranks, one rank after the other
	own            tensorops.Tensor // [elements, 1]: this rank's bucket
}

// piece is each rank's part of a parameter in a bucket: the elements [at, at+n) of the part. A part
// that is shorter by one leaves the last element unused.
type piece struct {
	h     *localParam
	at, n int
}

// layParts assigns the trained parameters whose state is in parts to buckets, and allocates the largest bucket.
func (s *Stage) layParts(l *tensorops.List, x *partExchange, divided bool) {
	x.divided = divided
	var grads, weights []*localParam
	for _, h := range s.local {
		if s.divided(h.param) != divided || !s.splits(h.param) || !h.param.descends() || s.liesInParts(h.param) {
			continue
		}
		if !h.splitsGrad && !divided { // sumOwnParts has buckets of its own
			grads = append(grads, h)
		}
		if !h.splitsWeight {
			weights = append(weights, h)
		}
	}
	if len(grads) == 0 && len(weights) == 0 {
		return
	}
	size := s.copiesIn(divided).Size()
	var most [2]int // elements of one rank in the largest bucket
	x.grads, most[0] = s.buckets(grads, bucketLen/size)
	x.weights, most[1] = s.buckets(weights, bucketLen/size)
	largest := max(most[0], most[1])
	x.all, x.own = l.Alloc(tensorops.Float32, size*largest, 1), l.Alloc(tensorops.Float32, largest, 1)
	l.Fill(x.all, 0)
	l.Fill(x.own, 0)
}

// buckets assigns parameters to buckets of so many elements of a rank.
func (s *Stage) buckets(params []*localParam, full int) (buckets [][]piece, largest int) {
	full = max(1, full)
	room := 0
	for _, h := range params {
		longest := s.partLen(h.param)
		for at := 0; at < longest; {
			if room == 0 {
				buckets, room = append(buckets, nil), full
			}
			n := min(room, longest-at)
			last := len(buckets) - 1
			buckets[last] = append(buckets[last], piece{h, at, n})
			at, room = at+n, room-n
			largest = max(largest, full-room)
		}
	}
	return buckets, largest
}

// ownCollective is the smallest number of elements of a parameter whose parts are not copied.
const ownCollective = 16 << 10

// liesInParts reports whether a parameter's parts are of equal length, and large enough for a
// collective of its own.
func (s *Stage) liesInParts(p *Param) bool {
	return p.Len() >= ownCollective && s.partition(p).even()
}

// reduceOwn starts the sums over the replicas of this rank's part of the gradients that lie in
// parts.
func (s *Stage) reduceOwn(l *tensorops.List, params []*localParam) {
	for _, h := range params {
		switch {
		case h.splitsGrad:
			s.reduceWhole(l, h)
		case s.liesInParts(h.param):
			all, own := s.parted(h.param, h.g[h.place()])
			s.beginCollective(l, tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: own, Src: all, How: tensorops.Sum})
		}
	}
}

// parted returns views of a parameter's tensor: as rows, one for each rank, and this rank's row.
func (s *Stage) parted(p *Param, t tensorops.Tensor) (all, own tensorops.Tensor) {
	rank, size := s.copyOf(p)
	all = t.View(size, p.Len()/size)
	return all, all.RowRange(rank, rank+1)
}

// within returns a view of a range of a contiguous tensor's elements.
func within(t tensorops.Tensor, from, to int) tensorops.Tensor {
	return t.Part(from, to-from)
}

// lenOf returns the number of elements of a rank in a bucket.
func lenOf(pieces []piece) (n int) {
	for _, p := range pieces {
		n += p.n
	}
	return n
}

// bucket returns views of the exchange buffer for one of the buckets; all has a row for each of so many ranks.
func (x *partExchange) bucket(pieces []piece, ranks int) (all, own tensorops.Tensor) {
	n := lenOf(pieces)
	return x.all.Part(0, ranks, n), x.own.Part(0, 1, n)
}

// eachPart calls f for each piece of a rank in a bucket, with the range of the parameter's elements
// and the piece's position in the bucket's row.
func (s *Stage) eachPart(pieces []piece, rank int, f func(h *localParam, from, to, at int)) {
	at := 0
	for _, p := range pieces {
		first, limit := s.partOf(p.h.param, rank)
		if from, to := first+p.at, min(first+p.at+p.n, limit); from < to {
			f(p.h, from, to, at)
		}
		at += p.n
	}
}

// reduceParts records the sum over the replicas of this rank's part of each gradient. The other
// parts do not change.
func (s *Stage) reduceParts(l *tensorops.List) {
	d := s.opts.Data
	for _, pieces := range s.parts.grads {
		all, own := s.parts.bucket(pieces, d.size())
		for rank := range d.size() {
			row := all.RowRange(rank, rank+1)
			s.eachPart(pieces, rank, func(h *localParam, from, to, at int) {
				l.Copy(within(row, at, at+to-from), within(h.g[h.place()], from, to))
			})
		}
		l.ReduceScatter(own, all, 0, tensorops.Sum, d.Group)
		s.eachPart(pieces, d.rank(), func(h *localParam, from, to, at int) {
			l.Copy(within(h.g[h.place()], from, to), within(own, at, at+to-from))
		})
	}
}

// reduceLoads records the sums over the replicas of the loads of experts, of which each rank needs all.
func (s *Stage) reduceLoads(l *tensorops.List) {
	for _, h := range s.local {
		if h.param.LoadRate != 0 && !h.param.Frozen {
			l.AllReduce(h.g[h.place()], tensorops.Sum, s.opts.Data.Group)
		}
	}
}

// updateParts records the update of this rank's part of each parameter, and the exchange of the
// parts.
func (s *Stage) updateParts(l *tensorops.List, u Update, clear bool) {
	s.letGo(l)
	s.updateAtHomes(l, u, false)
	for _, h := range s.local {
		if h.param.LoadRate != 0 && !h.param.Frozen {
			s.updateOne(l, u, h, h.w, h.g[h.place()], tensorops.Tensor{}, false)
			continue
		}
		if h.param.Frozen || s.homed(h) || !s.hasPart(h.param) {
			continue
		}
		w, g := s.updated(h)
		s.updateOne(l, u, h, w, g, tensorops.Tensor{}, false)
		s.gatherOwn(l, h)
	}
	if clear {
		s.clearWhole(l)
	}
	s.gatherBuckets(l, &s.parts)
	s.gatherBuckets(l, &s.expertParts)
	l.Await()
	for _, h := range s.local {
		if !h.param.Frozen && h.low.Valid() {
			l.Copy(h.low, h.w)
		}
	}
}

// gatherBuckets records the exchange of updated weights in buckets.
func (s *Stage) gatherBuckets(l *tensorops.List, x *partExchange) {
	for _, pieces := range x.weights {
		group := s.copiesIn(x.divided)
		all, own := x.bucket(pieces, group.Size())
		s.eachPart(pieces, group.Rank(), func(h *localParam, from, to, at int) {
			l.Copy(within(own, at, at+to-from), within(h.w, from, to))
		})
		l.AllGather(all, own, 0, group)
		for rank := range group.Size() {
			if rank == group.Rank() {
				continue
			}
			row := all.RowRange(rank, rank+1)
			s.eachPart(pieces, rank, func(h *localParam, from, to, at int) {
				l.Copy(within(h.w, from, to), within(row, at, at+to-from))
			})
		}
	}
}

// gatherOwn starts to gather a weight whose parts are updated, if it is whole on each rank and lies in parts.
func (s *Stage) gatherOwn(l *tensorops.List, h *localParam) {
	if s.splits(h.param) && !h.splitsWeight && s.liesInParts(h.param) {
		all, own := s.parted(h.param, h.w)
		s.beginCollective(l, tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: all, Src: own, Group: s.copiesOf(h.param)})
	}
}

// ofState returns a parameter with the part for which this rank has the optimizer state.
func (s *Stage) ofState(p *Param) *Param {
	if !s.splits(p) {
		return p
	}
	part := *p
	from, to := s.ownPart(p)
	part.Shape, part.Slice = []int{to - from}, p.Slice.Range(p.Slice.First+from, p.Slice.First+to)
	return &part
}
