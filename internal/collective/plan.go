package collective

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// sizes is where messages are cut. All members have the same.
type sizes struct {
	piece  int // bytes of a message at most; a multiple of 64
	gather int // an all_reduce or broadcast that makes each send so many bytes is sent as a whole to all: one latency
	eager  int // so many bytes are sent to a member before it is known to have begun
	copied int // what is sent of so many bytes is copied where its memory isn't free before it has arrived: a latency less
}

// Measured over the lane on one host (cluster/internal/groups/bench). A copy of a MiB takes a tenth of a
// millisecond, about what a word that it has arrived takes between two hosts that are near each other.
var measured = sizes{piece: 1 << 20, gather: 256 << 10, eager: 2 << 20, copied: 1 << 20}

// plan is what one member sends and expects in a collective. By peer; nil where it has nothing to do with one.
type plan struct {
	// The contributions. What this member gives lies in its source.
	give    []*region
	givers  []bool
	takes   int       // bytes of each giver's contribution
	into    []*region // where a giver's contribution goes, unless it is reduced
	lengths []int     // bytes of each giver's contribution, if they differ
	wireRun int       // contributions are cut every so many bytes; 0: nowhere

	// The reduction of own and all that is given.
	reduces  bool
	own, out region

	// The results: slices that members finish and send to the others.
	slices  []region // of the destination, by who finishes them
	to      []int    // who gets this member's slice
	from    []bool   // whose slices this member gets
	relays  bool     // this member's slice is what it is given, not what it reduces
	isReady bool     // this member's slice is ready from the beginning

	// local copies what the member gives to itself.
	localDst, localSrc *region
}

func newPlan(a tensorops.CollectiveArgs, rank, n int, z sizes) *plan {
	p := &plan{give: make([]*region, n), givers: make([]bool, n), into: make([]*region, n), from: make([]bool, n)}
	if a.What == tensorops.Barrier {
		p.everybody(rank, func(peer int) { p.give[peer], p.into[peer] = &region{}, &region{} })
		return p
	}
	src, dst := tensorops.Bytes(a.Src), tensorops.Bytes(a.Dst)
	size := a.Src.DType().Size()
	switch a.What {
	case tensorops.AllReduce:
		if p.reduces = true; len(src)*(n-1) <= z.gather {
			whole := dense(src)
			p.own, p.out, p.takes = whole, dense(dst), len(src)
			p.everybody(rank, func(peer int) { p.give[peer] = &whole })
			break
		}
		p.slices = slicesOf(dst, size, n)
		for peer, given := range slicesOf(src, size, n) {
			if peer == rank {
				p.own, p.out, p.takes = given, p.slices[rank], given.length
				continue
			}
			p.give[peer], p.givers[peer], p.from[peer] = &given, true, true
			p.to = append(p.to, peer)
		}
	case tensorops.ReduceScatter:
		part := func(of int) region { return partOf(src, a.Src, a.Dim, of, n, size) }
		p.reduces, p.own, p.out, p.takes = true, part(rank), dense(dst), len(dst)
		p.everybody(rank, func(peer int) {
			r := part(peer)
			p.give[peer] = &r
		})
		p.wireRun = wireRun(p.own)
	case tensorops.AllGather:
		whole := dense(src)
		part := func(of int) *region {
			r := partOf(dst, a.Dst, a.Dim, of, n, size)
			return &r
		}
		p.takes, p.localSrc, p.localDst = len(src), &whole, part(rank)
		p.everybody(rank, func(peer int) { p.give[peer], p.into[peer] = &whole, part(peer) })
		p.wireRun = wireRun(*p.localDst)
	case tensorops.AllToAll:
		part := func(b []byte, of int) *region {
			r := dense(b[len(b)/n*of:][:len(b)/n])
			return &r
		}
		p.takes, p.localSrc, p.localDst = len(src)/n, part(src, rank), part(dst, rank)
		p.everybody(rank, func(peer int) { p.give[peer], p.into[peer] = part(src, peer), part(dst, peer) })
	case tensorops.RingForward:
		whole, into := dense(src), dense(dst)
		before := (rank + n - 1) % n
		p.give[(rank+1)%n], p.givers[before], p.into[before], p.takes = &whole, true, &into, len(src)
	case tensorops.AllToAllV:
		p.exchangeRows(a, rank)
	case tensorops.Broadcast:
		p.broadcast(dst, size, a.Root, rank, n, z)
	}
	return p
}

// takesFrom returns the bytes of a giver's contribution.
func (p *plan) takesFrom(peer int) int {
	if p.lengths != nil {
		return p.lengths[peer]
	}
	return p.takes
}

// everybody calls f for all others, who give something.
func (p *plan) everybody(rank int, f func(peer int)) {
	for peer := range p.give {
		if peer != rank {
			p.givers[peer] = true
			f(peer)
		}
	}
}

// broadcast: where there is much, the root gives each member a slice, which that one passes on.
func (p *plan) broadcast(b []byte, size, root, rank, n int, z sizes) {
	if len(b)*(n-1) <= z.gather || n == 2 {
		whole := dense(b)
		if p.takes = len(b); rank != root {
			p.givers[root], p.into[root] = true, &whole
			return
		}
		for peer := range n {
			if peer != rank {
				p.give[peer] = &whole
			}
		}
		return
	}
	p.slices = slicesOf(b, size, n)
	for peer := range n {
		switch {
		case peer == rank:
		case rank == root:
			p.give[peer] = &p.slices[peer]
			p.to = append(p.to, peer)
		default:
			p.from[peer] = true
			if peer != root {
				p.to = append(p.to, peer)
			}
		}
	}
	if p.isReady = rank == root; p.isReady {
		return
	}
	p.relays, p.takes = true, p.slices[rank].length
	p.givers[root], p.into[root] = true, &p.slices[rank]
}

// slicesOf cuts memory into n slices, at multiples of 64 bytes.
func slicesOf(b []byte, _, n int) []region {
	list := make([]region, n)
	each := ((len(b)+n-1)/n + 63) &^ 63
	for i := range list {
		lo := min(i*each, len(b))
		list[i] = dense(b[lo:min(lo+each, len(b))])
	}
	return list
}

// partOf is a member's part of a tensor along a dimension.
func partOf(b []byte, whole tensorops.Tensor, dim, rank, n, size int) region {
	length := len(b) / n
	if length == 0 {
		return region{}
	}
	run := length / outer(whole, dim)
	return region{mem: b[rank*run:], run: run, stride: n * run, length: length}
}

// wireRun is the length at which messages are cut so that they go from where they lie to where they belong.
func wireRun(part region) int {
	if part.strided() && part.run >= leastRun {
		return part.run
	}
	return 0
}

// pieces is the number of messages for so many bytes: one at least, so that members hear of each other.
func (z sizes) pieces(length int) int {
	return max(1, (length+z.piece-1)/z.piece)
}

// bounds are the bytes of a piece.
func (z sizes) bounds(piece, length int) (lo, hi int) {
	lo = piece * z.piece
	return min(lo, length), min(lo+z.piece, length)
}
