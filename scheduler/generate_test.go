package scheduler

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

func generate(t *testing.T, s Spec) *Table {
	t.Helper()
	table, err := Generate(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return table
}

func check(t *testing.T, table *Table) *Report {
	t.Helper()
	report, err := Check(table)
	if err != nil {
		t.Fatalf("%s\n%v", table, err)
	}
	return report
}

func simulated(t *testing.T, table *Table, costs Costs) *Timeline {
	t.Helper()
	tl, err := Simulate(table, costs)
	if err != nil {
		t.Fatalf("%s\n%v", table, err)
	}
	return tl
}

// specs calls visit with every spec up to 8 ranks, 3 chunks and 16 microbatches,
// legal or not. Auto is tested apart.
func specs(visit func(Spec)) {
	for _, k := range builtIn {
		if k.rows == nil {
			continue
		}
		for p := 1; p <= 8; p++ {
			for m := 1; m <= 16; m++ {
				for v := 1; v <= 3; v++ {
					s := Spec{Schedule: k.name, Ranks: p, Chunks: v, Microbatches: m}
					visit(s)
					for s.MicrobatchGroupSize = 1; k.grouped && s.MicrobatchGroupSize < m+2; s.MicrobatchGroupSize++ {
						visit(s)
					}
				}
			}
		}
	}
}

// legal holds the rules of the schedules once more, written independently.
func legal(s Spec) bool {
	grouped := s.MicrobatchGroupSize == 0 || groupFits(s, s.MicrobatchGroupSize)
	switch s.Schedule {
	case None:
		return s.Ranks == 1
	case BreadthFirst:
		return true
	case Interleaved:
		return s.Chunks > 1 && grouped
	case ZB1P:
		return s.Chunks == 1 && s.MicrobatchGroupSize == 0 || s.Chunks > 1 && grouped
	case ZBV, VHalf, VMin, UShape:
		return s.Chunks == 2
	case DualPipeV:
		return s.Chunks == 2 && s.Microbatches >= 2*s.Ranks
	}
	return s.Chunks == 1
}

// groupFits holds the rule of groups.
func groupFits(s Spec, n int) bool {
	if s.Microbatches <= s.Ranks {
		return n == s.Microbatches
	}
	rest := s.Microbatches % n
	return s.Ranks <= n && n <= s.Microbatches && (rest == 0 || rest >= s.Ranks)
}

// groupOf is the group of a spec: the given one, or the least that fits.
func groupOf(s Spec) int {
	n := max(1, s.MicrobatchGroupSize)
	for s.MicrobatchGroupSize == 0 && !groupFits(s, n) {
		n++
	}
	return n
}

// TestDefaultGroup: the default is the least group that fits, and there always is one.
func TestDefaultGroup(t *testing.T) {
	for p := 1; p <= 20; p++ {
		for m := 1; m <= 200; m++ {
			s := Spec{Schedule: Interleaved, Ranks: p, Chunks: 2, Microbatches: m}
			if got, want := s.DefaultGroup(), groupOf(s); got != want {
				t.Errorf("%d microbatches on %d ranks: group %d, want %d", m, p, got, want)
			}
		}
	}
	for _, s := range []Spec{{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 15},
		{Schedule: ZB1P, Ranks: 4, Chunks: 1, Microbatches: 2}, {Schedule: "a file", Ranks: 4, Chunks: 2, Microbatches: 2}} {
		if got := s.DefaultGroup(); got != 4 {
			t.Errorf("%+v has no groups: %d, want its ranks", s, got)
		}
	}
}

// peakBounds are the least and the most that a rank may hold at its peak by the
// schedule's formula; without one, anything.
func peakBounds(s Spec, rank int) (least, most int) {
	p, m, v, n := s.Ranks, s.Microbatches, s.Chunks, groupOf(s)
	below := p - 1 - rank
	exactly := func(n int) (int, int) { return n, n }
	switch s.Schedule {
	case None:
		return exactly(v)
	case GPipe, BreadthFirst:
		return exactly(m * v)
	case OneFOneB:
		return exactly(min(below+1, m))
	case EagerOneFOneB:
		return exactly(min(2*below+1, m))
	case Interleaved:
		return exactly(min(2*below+(v-1)*n+1, m*v))
	case ZBH1:
		return exactly(min(p, m))
	case ZBH2:
		return exactly(min(2*p-1, m))
	case ZBV:
		if m >= 2*p-1 {
			return exactly(2 * p)
		}
		return 1, 2 * min(p, m)
	case VHalf:
		return 1, min(p+2, 2*m)
	case VMin:
		return 1, min(2*((p+2)/3)+2, 2*m)
	case DualPipeV:
		return exactly(2*p + 1)
	case UShape:
		if rank == 0 {
			return 1, min(p+1, m) + 1
		}
		return 1, min(p+1-rank, m)
	}
	return 1, m * v
}

// makespan is that of a schedule at unit costs, where there is a formula: the work of
// a rank, and the bubble.
func makespan(s Spec) (units int, ok bool) {
	p, m, v := s.Ranks, s.Microbatches, s.Chunks
	switch s.Schedule {
	case None, GPipe, OneFOneB, EagerOneFOneB:
		return 3*m*v + 3*(p-1), true
	case Interleaved: // a round through the ranks takes the time of as many microbatches at least
		return 3*(max(m, p)*(v-1)+m) + 3*(p-1), true
	case BreadthFirst:
		return 3*m*v + 3*(p-1), m >= p || v == 1
	case ZBH1:
		return 3*m + p - 1, m >= p
	case ZBH2, ZBV:
		return 3*m*v + p - 1, m >= 2*p-1
	case DualPipeV:
		return 6*m + 2*(p-1), true
	}
	return 0, false
}

// TestEveryTable checks every small table against the formulas: the peak on each
// rank, and the makespan.
func TestEveryTable(t *testing.T) {
	count := 0
	specs(func(s Spec) {
		table, err := Generate(s)
		if !legal(s) {
			if !errors.Is(err, ErrSpec) {
				t.Errorf("%+v: error %v, want ErrSpec", s, err)
			}
			return
		}
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			return
		}
		count++
		report, err := Check(table)
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			return
		}
		if report.OutOfOrder.Any() {
			t.Errorf("%+v: weight gradients out of order", s)
		}
		for r, peak := range report.PeakInFlight {
			if least, most := peakBounds(s, r); peak < least || peak > most {
				t.Errorf("%+v: rank %d holds %d, want %d to %d", s, r, peak, least, most)
			}
		}
		tl := simulated(t, table, UnitCosts)
		if want, ok := makespan(s); ok && tl.Makespan != float64(want) {
			t.Errorf("%+v: makespan %v, want %v", s, tl.Makespan, want)
		}
	})
	if count < 500 {
		t.Errorf("only %d specs were legal", count)
	}
}

// TestForwardOnly: every schedule has a forward-only table, of the same forwards
// in the same order.
func TestForwardOnly(t *testing.T) {
	specs(func(s Spec) {
		if !legal(s) {
			return
		}
		full := generate(t, s)
		s.ForwardOnly = true
		table := generate(t, s)
		check(t, table)
		for r := range full.Ranks {
			var forwards []Action
			for _, a := range full.Ranks[r] {
				if a.Type == F {
					forwards = append(forwards, a)
				}
			}
			for i := range forwards {
				forwards[i].Overlap = false
			}
			if table.Placement != V && !reflect.DeepEqual(table.Ranks[r], forwards) {
				t.Fatalf("%+v: rank %d runs\n%v, want\n%v", s, r, table.Ranks[r], forwards)
			}
		}
	})
	for m := 1; m <= 9; m++ {
		check(t, generate(t, Spec{Ranks: 4, Chunks: 3, Microbatches: m, MicrobatchGroupSize: 5, ForwardOnly: true}))
	}
}

func TestDefaultSchedule(t *testing.T) {
	for _, c := range []struct {
		ranks, chunks int
		want          string
	}{{1, 1, None}, {1, 2, None}, {2, 1, OneFOneB}, {2, 2, Interleaved}, {0, 0, None}} {
		if got := DefaultSchedule(c.ranks, c.chunks); got != c.want {
			t.Errorf("DefaultSchedule(%d, %d) = %q, want %q", c.ranks, c.chunks, got, c.want)
		}
	}
	table := generate(t, Spec{Ranks: 2, Chunks: 2, Microbatches: 4})
	if table.Schedule != Interleaved || table.NumChunks != 4 || table.NumRanks() != 2 || table.Placement != Loop {
		t.Errorf("2 ranks with 2 chunks have %d chunks on %d ranks by %q", table.NumChunks, table.NumRanks(), table.Schedule)
	}
}

func TestForwardsAhead(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want []int // by rank
	}{
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}, []int{4, 3, 2, 1}},
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 2}, []int{2, 2, 2, 1}},
		{Spec{Ranks: 4, Chunks: 2, Microbatches: 8}, []int{11, 9, 7, 5}},
		{Spec{Ranks: 4, Chunks: 2, Microbatches: 4}, []int{8, 8, 7, 5}},
		{Spec{Ranks: 2, Chunks: 2, Microbatches: 5, MicrobatchGroupSize: 3}, []int{6, 4}},
		{Spec{Schedule: GPipe, Ranks: 2, Chunks: 1, Microbatches: 5}, []int{5, 5}},
		{Spec{Ranks: 1, Chunks: 1, Microbatches: 5}, []int{1}},
	} {
		for rank, want := range c.want {
			if got := generate(t, c.spec).ForwardsAhead(rank); got != want {
				t.Errorf("%+v: rank %d runs %d forwards first, want %d", c.spec, rank, got, want)
			}
		}
	}
}

// TestPublishedTables compares with tables that other systems run. The expected
// files are not rewritten by -update.
func TestPublishedTables(t *testing.T) {
	for _, c := range []struct {
		file     string
		spec     Spec // empty: the table is only checked
		makespan float64
		peak     []int
	}{
		{"interleaved_p2_v2_m4", Spec{Ranks: 2, Chunks: 2, Microbatches: 4}, 27, []int{5, 3}},
		{"interleaved_p8_v2_m16", Spec{Ranks: 8, Chunks: 2, Microbatches: 16}, 117, []int{23, 21, 19, 17, 15, 13, 11, 9}},
		{"zb1p_p2_v2_m8", Spec{}, 49, []int{4, 4}},
	} {
		text, err := os.ReadFile("testdata/expected/" + c.file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		want := parseTable(t, string(text))
		if got := check(t, want).PeakInFlight; !reflect.DeepEqual(got, c.peak) {
			t.Errorf("%s: peak %v, want %v", c.file, got, c.peak)
		}
		if got := simulated(t, want, UnitCosts).Makespan; got != c.makespan {
			t.Errorf("%s: makespan %v, want %v", c.file, got, c.makespan)
		}
		if c.spec.Ranks > 0 {
			if got := generate(t, c.spec).String() + "\n"; got != string(text) {
				t.Errorf("%s: Generate differs: %s", c.file, firstDifference(string(text), got))
			}
		}
	}
}

// TestFigures holds single figures from the literature.
func TestFigures(t *testing.T) {
	for _, c := range []struct {
		spec     Spec
		makespan float64
		peak     []int
	}{
		{Spec{Schedule: GPipe, Ranks: 4, Chunks: 1, Microbatches: 8}, 33, []int{8, 8, 8, 8}},
		{Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}, 33, []int{4, 3, 2, 1}},
		{Spec{Schedule: OneFOneB, Ranks: 8, Chunks: 1, Microbatches: 32}, 117, []int{8, 7, 6, 5, 4, 3, 2, 1}},
		{Spec{Ranks: 4, Chunks: 2, Microbatches: 8}, 57, []int{11, 9, 7, 5}},
		{Spec{Ranks: 4, Chunks: 2, Microbatches: 12, MicrobatchGroupSize: 6}, 81, []int{13, 11, 9, 7}},
	} {
		table := generate(t, c.spec)
		if got := check(t, table).PeakInFlight; !reflect.DeepEqual(got, c.peak) {
			t.Errorf("%+v: peak %v, want %v", c.spec, got, c.peak)
		}
		if got := simulated(t, table, UnitCosts).Makespan; got != c.makespan {
			t.Errorf("%+v: makespan %v, want %v", c.spec, got, c.makespan)
		}
	}

	row := generate(t, Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}).Ranks[1]
	want := "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"
	if got := strings.TrimPrefix(strings.ReplaceAll(rowString(row), " 1", " "), "1"); got != want {
		t.Errorf("1F1B, chunk 1: %s\nwant %s", got, want)
	}
}

func rowString(row []Action) string {
	return (&Table{Ranks: [][]Action{row}}).String()
}
