package collective

import "github.com/troupe-ml/troupe/tensorops"

// AllToAllV. The table that says how many rows go from each member to each other is known to all before: the members' tables
// are part of the signature. So each knows the length of every message before it arrives, and takes no other.

// AllToAllV starts an exchange of rows: see tensorops.List.AllToAllV.
func (g *Group) AllToAllV(dst, src, table tensorops.Tensor, back bool) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllToAllV, Dst: dst, Src: src, Table: table, Back: back})
}

// tableOf reads the table of a call that has passed tensorops.CollectiveArgs.ExchangedRows.
func tableOf(a *tensorops.CollectiveArgs) tensorops.SourceTable {
	t, _ := tensorops.ReadSources(tensorops.Elements[int32](a.Table), a.Table.Rows())
	return t
}

// exchangeRows makes one job of each pair of members.
func (w *work) exchangeRows() {
	w.bytes = 0
	t := tableOf(&w.calls[0].CollectiveArgs)
	for rank := range w.calls {
		w.bytes += t.Sent(rank) * w.calls[0].Src.Cols() * w.size
	}
	w.run, w.jobs, w.per = (*work).moveRows, w.n*w.n, 1
}

// moveRows copies the rows of one source to the experts of one member, or back.
func (w *work) moveRows(_ *scratch, job int) {
	source, holder := job/w.n, job%w.n
	from, to := source, holder
	if w.calls[0].Back {
		from, to = holder, source
	}
	row := w.calls[0].Src.Cols() * w.size
	tableOf(&w.calls[0].CollectiveArgs).Runs(source, holder, func(at, held, n int) {
		if w.calls[0].Back {
			at, held = held, at
		}
		copy(w.dst[to][held*row:(held+n)*row], w.src[from][at*row:(at+n)*row])
	})
}

// exchangeRows plans what a member sends and gets: the rows at their source lie together, those at their expert do not.
func (p *plan) exchangeRows(a tensorops.CollectiveArgs, rank int) {
	t, row := tableOf(&a), a.Src.Cols()*a.Src.DType().Size()
	src, dst := tensorops.Bytes(a.Src), tensorops.Bytes(a.Dst)
	own, held := src, dst // the memory at the source, and at the expert
	if a.Back {
		own, held = held, own
	}
	atSource := func(peer int) *region { // this member's rows with a peer's experts
		first, n := t.Rows(rank, peer)
		r := dense(own[first*row : (first+n)*row])
		return &r
	}
	atExpert := func(peer int) *region { // a peer's rows with this member's experts
		r := region{mem: held}
		t.Runs(peer, rank, func(_, at, n int) { r.add(at*row, n*row) })
		if len(r.pieces) < 2 {
			r = r.only()
		}
		return &r
	}
	give, into := atSource, atExpert
	if a.Back {
		give, into = into, give
	}
	p.lengths = make([]int, len(p.give))
	p.everybody(rank, func(peer int) {
		p.give[peer], p.into[peer] = give(peer), into(peer)
		p.lengths[peer] = p.into[peer].length
	})
	p.localSrc, p.localDst = atSource(rank), atExpert(rank)
	if a.Back {
		p.localSrc, p.localDst = p.localDst, p.localSrc
	}
}
