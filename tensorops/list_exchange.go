package tensorops

import (
	"fmt"
	"math"
)

// The exchange of rows between S ranks that share E experts: rank r has the experts from r·E/S on, E/S of them. Every rank is a
// source of rows. Its rows lie in the order of their experts, and Route's offsets say where those of each expert begin. The
// offsets of all sources, one row for each, are a table S×(E+1), which AllGather makes. It says how many rows go from each
// source to each rank, so no other count is exchanged.
//
// At the rank of an expert, rows lie in the order of (expert, source, row at the source). SourceOffsets says where those of
// each source begin.

// SourceOffsets records, for a rank, offsets[e·S+s] = the first row of the rank's expert e that comes from source s, and after
// these the number of all its rows: E/S·S+1 int32. A table that does not ascend from 0 in each row fails with ErrRoute.
func (l *List) SourceOffsets(offsets, table Tensor, rank int) {
	o := l.op(KindSourceOffsets)
	SourceOffsetsArgs{offsets, table, rank}.Put(o)
	sources, experts := table.Rows(), table.Cols()-1
	l.need(o, dense(Int32, offsets, table) && table.Rank() == 2 && sources >= 1 && experts >= 0 && experts%sources == 0 &&
		rank >= 0 && rank < sources && offsets.Len() == experts+1,
		"table S×(E+1) and offsets E+1 int32, S divides E, the rank (size 0) below S")
}

// SourceOffsetsArgs are the operands of KindSourceOffsets.
type SourceOffsetsArgs struct {
	Offsets, Table Tensor
	Rank           int
}

// Put stores the operands.
func (a SourceOffsetsArgs) Put(o *Op) {
	o.operands(a.Offsets, a.Table)
	o.I[0] = a.Rank
}

// SourceOffsets reads the operands.
func (o *Op) SourceOffsets() SourceOffsetsArgs {
	return SourceOffsetsArgs{Offsets: o.T[0], Table: o.T[1], Rank: o.I[0]}
}

// AllToAllV exchanges rows as a table of SourceOffsets says: src has this rank's rows in the order of their experts, and dst gets
// the rows of this rank's experts. With back, the rows go the other way. dst and src are R×C; rows beyond those of the table are
// neither read nor written. A table with more rows than a tensor has fails with ErrRoute, before anything is sent.
func (l *List) AllToAllV(dst, src, table Tensor, back bool, g Group) {
	l.collective(CollectiveArgs{What: AllToAllV, Dst: dst, Src: src, Table: table, Back: back, Group: g})
}

// checkTable checks the shapes of AllToAllV.
func (a CollectiveArgs) checkTable() error {
	sources, experts := a.Table.Rows(), a.Table.Cols()-1
	if !dense(Int32, a.Table) || a.Table.Rank() != 2 || sources != a.Group.Size() || experts < 0 || experts%sources != 0 {
		return fmt.Errorf("%v of %d members needs a table of int32 with a row for each and E+1 columns, where E is a multiple of the "+
			"members, not %v", a.What, a.Group.Size(), a.Table)
	}
	if a.Dst.Rank() != 2 || a.Src.Rank() != 2 || a.Dst.Cols() != a.Src.Cols() {
		return fmt.Errorf("%v needs rows of one length, not %v and %v", a.What, a.Dst, a.Src)
	}
	return nil
}

// SourceTable is a table of SourceOffsets in memory.
type SourceTable struct {
	offsets          []int32
	sources, experts int
}

// ReadSources checks the numbers of a table. Devices and groups call it. The error is ErrRoute.
func ReadSources(offsets []int32, sources int) (SourceTable, error) {
	t := SourceTable{offsets: offsets, sources: sources}
	if sources < 1 || len(offsets) == 0 || len(offsets)%sources != 0 || (len(offsets)/sources-1)%sources != 0 {
		return t, fmt.Errorf("%w: a table of %d offsets from %d sources", ErrRoute, len(offsets), sources)
	}
	t.experts = len(offsets)/sources - 1
	all := 0
	for s := range sources {
		row := t.row(s)
		if row[0] != 0 {
			return t, fmt.Errorf("%w: the rows of source %d begin at %d", ErrRoute, s, row[0])
		}
		for e := range t.experts {
			if row[e+1] < row[e] {
				return t, fmt.Errorf("%w: source %d has the rows %d to %d for expert %d", ErrRoute, s, row[e], row[e+1], e)
			}
		}
		all += int(row[t.experts])
	}
	if all > math.MaxInt32 {
		return t, fmt.Errorf("%w: %d sources have %d rows, the limit is %d", ErrRoute, sources, all, math.MaxInt32)
	}
	return t, nil
}

// ExchangedRows returns how many rows of src an AllToAllV of this rank reads and how many of dst it writes, by the numbers of its
// table. Devices and groups call it. The error, of a table that is impossible or has more rows than the tensors, is ErrRoute.
func (a CollectiveArgs) ExchangedRows(table []int32) (read, written int, err error) {
	t, err := ReadSources(table, a.Group.Size())
	if err != nil {
		return 0, 0, err
	}
	own, held := a.Src, a.Dst
	if a.Back {
		own, held = held, own
	}
	sent, kept := t.Sent(a.Group.Rank()), t.Held(a.Group.Rank())
	if sent > own.Rows() {
		return 0, 0, fmt.Errorf("%w: %d rows of this rank, of which a tensor has %d", ErrRoute, sent, own.Rows())
	}
	if kept > held.Rows() {
		return 0, 0, fmt.Errorf("%w: %d rows for the experts of this rank, for which a tensor has room for %d", ErrRoute, kept, held.Rows())
	}
	if a.Back {
		return kept, sent, nil
	}
	return sent, kept, nil
}

func (t SourceTable) row(source int) []int32 { return t.offsets[source*(t.experts+1):][:t.experts+1] }

// held returns the experts [first, limit) of a rank.
func (t SourceTable) held(rank int) (first, limit int) {
	n := t.experts / t.sources
	return rank * n, (rank + 1) * n
}

// Sent returns how many rows a source has in total.
func (t SourceTable) Sent(source int) int { return int(t.row(source)[t.experts]) }

// Rows returns how many rows of a source belong to the experts of a rank, and which is the first of them at the source.
func (t SourceTable) Rows(source, rank int) (first, n int) {
	from, to := t.held(rank)
	row := t.row(source)
	return int(row[from]), int(row[to] - row[from])
}

// Held returns how many rows the experts of a rank have in total.
func (t SourceTable) Held(rank int) (n int) {
	for s := range t.sources {
		_, of := t.Rows(s, rank)
		n += of
	}
	return n
}

// Offsets sets offsets as SourceOffsets does.
func (t SourceTable) Offsets(offsets []int32, rank int) {
	var at int32
	first, limit := t.held(rank)
	for e := first; e < limit; e++ {
		for s := range t.sources {
			offsets[(e-first)*t.sources+s] = at
			row := t.row(s)
			at += row[e+1] - row[e]
		}
	}
	offsets[len(offsets)-1] = at
}

// Runs calls f for each run of n rows from a source to an expert of a rank: they begin at row from of the source's, and at row
// at of the rank's. Runs without rows are left out.
func (t SourceTable) Runs(source, rank int, f func(from, at, n int)) {
	at := 0
	first, limit := t.held(rank)
	for e := first; e < limit; e++ {
		for s := range t.sources {
			row := t.row(s)
			n := int(row[e+1] - row[e])
			if s == source && n > 0 {
				f(int(row[e]), at, n)
			}
			at += n
		}
	}
}
