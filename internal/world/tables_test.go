package world

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

var tables = flag.Int("tables", 1000, "how many random sets of tables TestTables checks and runs")

// expertModel says how many layers with experts each chunk has.
type expertModel []int

// exchanges returns those of an action: tokens go to their experts and results come back, in each layer.
func (m expertModel) exchanges(a scheduler.Action) (all []scheduler.Type) {
	if a.Chunk < 0 || int(a.Chunk) >= len(m) {
		return nil
	}
	for range m[a.Chunk] {
		switch a.Type {
		case scheduler.F:
			all = append(all, scheduler.FD, scheduler.FC)
		case scheduler.I, scheduler.B:
			all = append(all, scheduler.BD, scheduler.BC)
		}
	}
	return all
}

// expertTables are the tables of replicas whose ranks share experts. Most have their pairs in parts.
func (r random) expertTables() ([]*scheduler.Table, expertModel) {
	names := []string{scheduler.None, scheduler.OneFOneB, scheduler.OneFOneB, scheduler.EagerOneFOneB, scheduler.DualPipeV,
		scheduler.DualPipeV,
		scheduler.ZBV, scheduler.ZBH1, scheduler.GPipe, scheduler.Interleaved}
	for {
		s := scheduler.Spec{Schedule: names[r.IntN(len(names))], Ranks: 1 + r.IntN(3), Chunks: 1 + r.IntN(2), Microbatches: 1 + r.IntN(7)}
		s.Pairs = !r.one(4)
		if s.Schedule == scheduler.None {
			s.Ranks = 1
		}
		t, err := scheduler.Generate(s)
		if err != nil {
			continue
		}
		m := make(expertModel, t.NumChunks)
		for i := range m {
			m[i] = r.IntN(3)
		}
		if !r.one(6) {
			if t, err = t.Cut(m.exchanges); err != nil {
				panic(err)
			}
		}
		if r.one(3) { // an order that every replica has, and no generator makes
			for range 1 + r.IntN(3) {
				own := *t
				own.Ranks = cloneRows(t.Ranks)
				row := own.Ranks[r.IntN(len(own.Ranks))]
				if i := r.IntN(len(row)); i+1 < len(row) {
					swapActions(row, i, i+1)
				}
				if verdict([]*scheduler.Table{&own, &own}, m) == nil {
					t = &own
				}
			}
		}
		all := make([]*scheduler.Table, 2+r.IntN(2))
		for i := range all {
			own := *t
			own.Ranks = cloneRows(t.Ranks)
			all[i] = &own
		}
		return all, m
	}
}

func cloneRows(rows [][]scheduler.Action) [][]scheduler.Action {
	out := make([][]scheduler.Action, len(rows))
	for i, row := range rows {
		out[i] = slices.Clone(row)
	}
	return out
}

// swapActions exchanges two actions, but not which of the places overlaps with the next one.
func swapActions(row []scheduler.Action, i, k int) {
	row[i], row[k] = row[k], row[i]
	row[i].Overlap, row[k].Overlap = row[k].Overlap, row[i].Overlap
}

// breakTable changes a row of one of the tables, or the same row of all. The result may be as good as before.
func (r random) breakTable(all []*scheduler.Table) string {
	replica, rank := r.IntN(len(all)), r.IntN(len(all[0].Ranks))
	if len(all[replica].Ranks[rank]) == 0 {
		return "nothing"
	}
	seed, everywhere := r.Uint64(), r.one(4)
	what := ""
	for i, t := range all {
		if i == replica || everywhere {
			same := random{rand.New(rand.NewPCG(seed, 7))}
			t.Ranks[rank], what = same.breakRow(t, t.Ranks[rank])
		}
	}
	if everywhere {
		what += " everywhere"
	}
	return what
}

func (r random) breakRow(t *scheduler.Table, row []scheduler.Action) ([]scheduler.Action, string) {
	if len(row) == 0 {
		return row, "nothing"
	}
	i := r.IntN(len(row))
	a := &row[i]
	var cut []int
	for k := range row {
		if row[k].Part > 0 {
			cut = append(cut, k)
		}
	}
	if len(cut) > 0 && !r.one(3) {
		i = cut[r.IntN(len(cut))]
		a = &row[i]
	}
	if len(cut) > 0 && r.one(4) {
		return r.mergeParts(row, i), "another order of parts"
	}
	switch r.IntN(12) {
	case 0, 1, 2:
		if i+1 < len(row) {
			swapActions(row, i, i+1)
		}
		return row, "neighbors swapped"
	case 3:
		swapActions(row, i, r.IntN(len(row)))
		return row, "two swapped"
	case 4:
		return slices.Delete(row, i, i+1), "dropped"
	case 5:
		return slices.Insert(row, r.IntN(len(row)+1), *a), "doubled"
	case 6:
		a.Part = uint16(r.IntN(4))
		return row, "another part"
	case 7:
		a.Type = scheduler.Type(1 + r.IntN(int(scheduler.BC)))
		return row, "another type"
	case 8:
		a.Microbatch = int32(r.IntN(t.Microbatches + 1))
		return row, "another microbatch"
	case 9:
		a.Chunk = int32(r.IntN(t.NumChunks + 1))
		return row, "another chunk"
	case 10:
		a.Overlap = !a.Overlap
		return row, "overlap"
	default: // a part to another place of its group
		first := i
		for first > 0 && row[first-1].Overlap {
			first--
		}
		swapActions(row, i, first+r.IntN(scheduler.Width(row, first)))
		return row, "swapped in its pair"
	}
}

// mergeParts gives the parts of a pair another order, in which those of each action keep theirs.
func (r random) mergeParts(row []scheduler.Action, i int) []scheduler.Action {
	first := i
	for first > 0 && row[first-1].Overlap {
		first--
	}
	group := row[first : first+scheduler.Width(row, first)]
	var sides [2][]scheduler.Action
	for _, a := range group {
		if a.Type.IsForward() {
			sides[0] = append(sides[0], a)
		} else {
			sides[1] = append(sides[1], a)
		}
	}
	for k := range group {
		side := &sides[r.IntN(2)]
		if len(*side) == 0 {
			side = &sides[0]
			if len(*side) == 0 {
				side = &sides[1]
			}
		}
		overlap := group[k].Overlap
		group[k] = (*side)[0]
		group[k].Overlap = overlap
		*side = (*side)[1:]
	}
	return row
}

// verdict is what the checkers say of tables: each by itself, the orders of their exchanges, and all ranks together.
func verdict(all []*scheduler.Table, m expertModel) error {
	for i, t := range all {
		if _, err := scheduler.Check(t); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
	}
	if err := scheduler.CheckExchanges(m.exchanges, all...); err != nil {
		return err
	}
	g, err := grid.New(grid.Sizes{Pipeline: len(all[0].Ranks), Data: len(all)})
	if err != nil {
		return err
	}
	o := &Orders{Grid: g, Tables: all}
	at := make(map[int]int32)
	for _, ranks := range g.Groups(grid.Data) {
		for _, rank := range ranks {
			at[rank] = int32(len(o.Groups))
		}
		o.Groups = append(o.Groups, Group{g.Name(ranks[0], grid.Data), ranks})
	}
	o.Lists = func(rank int, t *scheduler.Table) (l Lists, err error) {
		for _, a := range t.Ranks[g.Coordinates(rank)[grid.Pipeline]] {
			var ops []Op
			add := func(of scheduler.Action, typ scheduler.Type) {
				ops = append(ops, Op{Group: at[rank], What: "all_to_all", Of: fmt.Sprintf("%v of %v", typ, of)})
			}
			switch {
			case a.Type.IsExchange():
				add(a, a.Type)
			case a.Part == 0:
				for k, typ := range m.exchanges(whole(a)) {
					of := whole(a)
					of.Type, of.Part = typ, uint16(k+1)
					add(of, typ)
				}
			}
			l.Actions = append(l.Actions, ops)
		}
		return l, nil
	}
	w, err := o.World()
	if err != nil {
		return err
	}
	_, err = Check(w)
	return err
}

// TestTables: of random tables with exchanges of tokens, most with a mistake or several, the checkers say what an execution comes to.
func TestTables(t *testing.T) {
	kinds := make(map[error]int)
	known := []error{scheduler.ErrTable, scheduler.ErrRank, scheduler.ErrDuplicate, scheduler.ErrIncomplete, scheduler.ErrOrder,
		scheduler.ErrDeadlock, scheduler.ErrExchange, ErrMixed, ErrDeadlock, ErrMissing}
	synctest.Test(t, func(t *testing.T) {
		arena := tensorops.NewHostMemory(0).NewArena("tables")
		defer arena.Close()
		for i := range *tables {
			r := random{rand.New(rand.NewPCG(*seed, uint64(i)))}
			all, m := r.expertTables()
			what := ""
			for range i % 4 {
				what += r.breakTable(all) + "; "
			}
			limits := make([]*scheduler.Credits, len(all))
			for k, own := range all {
				if report, err := scheduler.Check(own); err == nil {
					limits[k] = &report.Credits
				}
			}
			err := verdict(all, m)
			x := executeTables(all, limits, m.exchanges, arena)
			if (err == nil) != x.clean() {
				t.Fatalf("tables %d of seed %d (%s), layers with experts %v:\n%v\nthe run: %v\nthe checker: %v", i, *seed, what, m, all, x, err)
			}
			if err != nil && i%4 == 0 {
				t.Fatalf("tables %d of seed %d have no mistake, and the checker says: %v", i, *seed, err)
			}
			at := slices.IndexFunc(known, func(k error) bool { return errors.Is(err, k) })
			switch {
			case err == nil:
				kinds[nil]++
			case at < 0:
				t.Fatalf("tables %d of seed %d: an unknown error: %v", i, *seed, err)
			default:
				kinds[known[at]]++
			}
		}
	})
	t.Logf("%d sets of tables: %v", *tables, kinds)
	for _, kind := range []error{nil, scheduler.ErrTable, scheduler.ErrExchange} {
		if kinds[kind] < *tables/50 {
			t.Errorf("%d of %d sets end with %v: too few to tell", kinds[kind], *tables, kind)
		}
	}
}
