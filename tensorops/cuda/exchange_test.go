//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// exchangeTest is an exchange of rows of cols numbers among the ranks that have rows for experts.
type exchangeTest struct {
	counts [][]int32 // of each rank for each expert
	cols   int
}

// own are the offsets of a rank's rows.
func (x exchangeTest) own(rank int) []int32 {
	offsets := []int32{0}
	for _, n := range x.counts[rank] {
		offsets = append(offsets, offsets[len(offsets)-1]+n)
	}
	return offsets
}

func (x exchangeTest) table() (all []int32) {
	for rank := range x.counts {
		all = append(all, x.own(rank)...)
	}
	return all
}

// row is a row of a rank's, of numbers that bfloat16 has.
func (x exchangeTest) row(rank int, at int32) (numbers []float32) {
	for c := range x.cols {
		numbers = append(numbers, float32((61*rank+7*int(at)+c%5)%256))
	}
	return numbers
}

// rows are those of a rank, in the order of their experts, and those that come to its experts.
func (x exchangeTest) rows(rank int) (own, held []float32) {
	n := len(x.counts[0]) / len(x.counts)
	for at := range x.own(rank)[len(x.counts[0])] {
		own = append(own, x.row(rank, at)...)
	}
	for e := rank * n; e < (rank+1)*n; e++ {
		for source := range x.counts {
			offsets := x.own(source)
			for at := offsets[e]; at < offsets[e+1]; at++ {
				held = append(held, x.row(source, at)...)
			}
		}
	}
	return own, held
}

// runExchange sends the rows of each rank to their experts and back, by a table that AllGather makes (gathered) or that is there. It
// returns the batches of each rank.
func runExchange(t *testing.T, d *Device, calls func() int64, x exchangeTest, dtype tensorops.DType, gathered bool) int64 {
	t.Helper()
	const more = 3 // rows that no table has
	n, experts := len(x.counts), len(x.counts[0])
	before := calls()
	var ended sync.WaitGroup
	for rank, g := range collective.Local("experts", n) {
		ended.Go(func() {
			s := d.NewStream(fmt.Sprint("rank ", rank))
			defer s.Close()
			own, held := x.rows(rank)
			l := s.NewList()
			table, offsets := l.Alloc(tensorops.Int32, n, experts+1), l.Alloc(tensorops.Int32, 1, experts+1)
			source := l.Alloc(tensorops.Int32, experts+1)
			made := []tensorops.Tensor{table, offsets, source}
			filled := func(with float64, numbers []float32) tensorops.Tensor {
				rows := len(numbers)/x.cols + more
				wide, to := l.Alloc(tensorops.Float32, rows, x.cols), l.Alloc(dtype, rows, x.cols)
				l.Fill(wide, with)
				l.Upload(wide.RowRange(0, rows-more), tensorops.HostBytes(numbers))
				l.Copy(to, wide)
				l.Free(wide)
				made = append(made, to)
				return to
			}
			src, there, home := filled(-1, own), filled(-2, make([]float32, len(held))), filled(-3, make([]float32, len(own)))
			if gathered {
				l.Upload(offsets, tensorops.HostBytes(x.own(rank)))
				l.AllGather(table, offsets, 0, g)
			} else {
				l.Upload(offsets, tensorops.HostBytes(x.own(rank))) // as many batches
				l.Upload(table, tensorops.HostBytes(x.table()))
			}
			l.SourceOffsets(source, table, rank)
			l.AllToAllV(there, src, table, false, g)
			l.AllToAllV(home, there, table, true, g)
			at := make([]int32, experts+1)
			l.Fetch(tensorops.HostBytes(at), source)
			var got [2][]float32
			for i, y := range []tensorops.Tensor{there, home} {
				wide := l.Alloc(tensorops.Float32, y.Shape()...)
				l.Copy(wide, y)
				got[i] = make([]float32, y.Len())
				l.Fetch(tensorops.HostBytes(got[i]), wide)
				l.Free(wide)
			}
			for _, y := range made {
				l.Free(y)
			}
			if err := tensorops.Run(s, l); err != nil {
				t.Error(err)
				return
			}
			for i, want := range [][]float32{held, own} {
				want = append(want[:len(want):len(want)], slices.Repeat([]float32{float32(-2 - i)}, more*x.cols)...)
				if !slices.Equal(got[i], want) {
					t.Errorf("%v of %v, rank %d: %v, want %v", dtype, x.counts, rank, got[i], want)
				}
			}
			of, err := tensorops.ReadSources(x.table(), n)
			want := make([]int32, experts+1)
			if of.Offsets(want, rank); err != nil || !slices.Equal(at, want) {
				t.Errorf("rank %d: offsets %d, want %d, %v", rank, at, want, err)
			}
		})
	}
	ended.Wait()
	if m := d.Memory(); m.InUse != 0 {
		t.Errorf("%d bytes are in use in the end", m.InUse)
	}
	return (calls() - before) / int64(n)
}

// TestExchangesRows: ranks send rows to their experts and back; what a table does not name stays. A table that was gathered needs no
// batch of its own, one that the host has not seen is fetched once.
func TestExchangesRows(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	for _, x := range []exchangeTest{
		{[][]int32{{2, 1}, {0, 3}}, 5},
		{[][]int32{{0, 0, 0, 0}, {0, 4, 0, 0}}, 1},
		{[][]int32{{0, 0}, {0, 0}}, 3},
		{[][]int32{{1, 2, 3, 4, 5, 6}, {7, 0, 0, 2, 1, 1}, {0, 0, 9, 0, 0, 30}}, 33},
		{[][]int32{{3, 1}}, 4},
	} {
		for _, dtype := range []tensorops.DType{tensorops.Float32, tensorops.BFloat16} {
			for _, gathered := range []bool{true, false} {
				n := runExchange(t, d, func() int64 { return l.Calls("cuEventRecord") }, x, dtype, gathered)
				if n != 4 { // up to the table, and to either exchange
					t.Errorf("%v, gathered %v: %d batches", x.counts, gathered, n)
				}
			}
		}
	}
}

// TestExchangesLargeRows: rows that are copied beside the kernels, on a device that is late.
func TestExchangesLargeRows(t *testing.T) {
	l, path := stand(t)
	l.Delay(100)
	d := newDevice(t, path, Options{})
	calls := func() int64 { return 0 }
	runExchange(t, d, calls, exchangeTest{[][]int32{{600, 100}, {10, 900}}, 1023}, tensorops.Float32, true)
}

// TestTablesChecked: a table that cannot be, or that has more rows than there are, fails the list before anything is sent.
func TestTablesChecked(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	g := collective.Local("experts", 2)[0]
	s := d.NewStream("tables")
	defer s.Close()
	for _, c := range []struct {
		table    []int32
		exchange bool
	}{
		{[]int32{0, 2, 1, 0, 1, 2}, false},
		{[]int32{0, 1, 2, 1, 1, 2}, false},
		{[]int32{0, 1, 1<<31 - 1, 0, 1, 2}, false},
		{[]int32{0, 2, 1, 0, 1, 2}, true},
		{[]int32{0, 1, 5, 0, 1, 2}, true},  // rows of this rank
		{[]int32{0, 1, 4, 0, 9, 10}, true}, // rows for its experts
	} {
		l := s.NewList()
		table, offsets := l.Alloc(tensorops.Int32, 2, 3), l.Alloc(tensorops.Int32, 3)
		src, dst := l.Alloc(tensorops.Float32, 4, 2), l.Alloc(tensorops.Float32, 8, 2)
		l.Upload(table, tensorops.HostBytes(c.table))
		if c.exchange {
			l.AllToAllV(dst, src, table, false, g)
		} else {
			l.SourceOffsets(offsets, table, 0)
		}
		for _, x := range []tensorops.Tensor{table, offsets, src, dst} {
			l.Free(x)
		}
		if err := tensorops.Run(s, l); !errors.Is(err, tensorops.ErrRoute) {
			t.Errorf("table %d, exchange %v: %v", c.table, c.exchange, err)
		}
	}
}

// TestKnownTables: a table is known from its exchange until something else may be in its memory.
func TestKnownTables(t *testing.T) {
	arena := tensorops.NewHostMemory(0).NewArena("test")
	defer arena.Close()
	tensor := func(at uint64, dims ...int) tensorops.Tensor {
		x, err := tensorops.NewTensor(arena, tensorops.Int32, dims...)
		if err != nil {
			t.Fatal(err)
		}
		x.Buffer().Addr = at
		return x
	}
	table, row, result := tensor(4096, 2, 3), tensor(8192, 1, 3), tensor(0, 2, 3)
	copy(tensorops.Elements[int32](result), []int32{0, 1, 2, 0, 3, 4})
	g := collective.Local("experts", 2)[0]
	gather := tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: table, Src: row, Group: g}
	rows := tensor(16384, 4, 2)
	op := func(record func(l *tensorops.List)) []tensorops.Op {
		l := tensorops.NewDryStream().NewList()
		record(l)
		return l.Ops()
	}
	for name, c := range map[string]struct {
		ops  []tensorops.Op
		stay bool
	}{
		"exchanges":   {op(func(l *tensorops.List) { l.AllToAllV(rows, rows, table, true, g) }), true},
		"its offsets": {op(func(l *tensorops.List) { l.SourceOffsets(row, table, 1) }), true},
		"others":      {op(func(l *tensorops.List) { l.Fill(rows, 0) }), true},
		"written":     {op(func(l *tensorops.List) { l.Fill(table, 0) }), false},
		"a part":      {op(func(l *tensorops.List) { l.Fill(tensor(4100, 1), 0) }), false},
		"as offsets":  {op(func(l *tensorops.List) { l.SourceOffsets(table.RowRange(0, 1), tensor(1<<20, 2, 3), 1) }), false},
	} {
		var k knownTables
		k.crossed(gather, result, tensorops.Tensor{})
		if numbers, ok := k.numbers(table); !ok || !slices.Equal(numbers, []int32{0, 1, 2, 0, 3, 4}) {
			t.Fatalf("%s: %d, %v", name, numbers, ok)
		}
		if _, ok := k.numbers(table.RowRange(0, 1)); ok {
			t.Errorf("%s: a part of a table is a table", name)
		}
		if k.passed(c.ops); len(k.all) > 0 != c.stay {
			t.Errorf("%s: it is known: %v", name, !c.stay)
		}
	}
}
