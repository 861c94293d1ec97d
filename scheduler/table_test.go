package scheduler

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

func TestTablePlaces(t *testing.T) {
	for _, c := range []struct {
		placement     Placement
		ranks, chunks int
		rankOf, chunk []int // by stage
	}{
		{Loop, 3, 1, []int{0, 1, 2}, []int{0, 0, 0}},
		{Loop, 2, 3, []int{0, 1, 0, 1, 0, 1}, []int{0, 0, 1, 1, 2, 2}},
		{V, 3, 2, []int{0, 1, 2, 2, 1, 0}, []int{0, 0, 0, 1, 1, 1}},
		{U, 3, 2, []int{0, 1, 2, 0}, []int{0, 0, 0, 1}},
		{V, 1, 2, []int{0, 0}, []int{0, 1}},
		{U, 1, 2, []int{0, 0}, []int{0, 1}},
	} {
		stages, err := c.placement.Stages(c.ranks, c.chunks)
		if err != nil || stages != len(c.rankOf) {
			t.Errorf("%v on %d ranks: %d stages, %v; want %d", c.placement, c.ranks, stages, err, len(c.rankOf))
			continue
		}
		if err := c.placement.fits(stages, c.ranks); err != nil {
			t.Error(err)
		}
		table := &Table{Placement: c.placement, NumStages: stages, Ranks: make([][]Action, c.ranks)}
		for s := range stages {
			if table.RankOf(s) != c.rankOf[s] || table.Chunk(s) != c.chunk[s] {
				t.Errorf("%v on %d ranks: stage %d is chunk %d of rank %d, want chunk %d of rank %d",
					c.placement, c.ranks, s, table.Chunk(s), table.RankOf(s), c.chunk[s], c.rankOf[s])
			}
		}
	}
}

func TestImpossiblePlaces(t *testing.T) {
	for _, c := range []struct {
		placement     Placement
		ranks, chunks int
	}{{V, 2, 3}, {U, 2, 1}, {U + 1, 2, 2}, {Loop, 0, 1}, {Loop, 1, -1}, {Loop, math.MaxInt, math.MaxInt}} {
		if stages, err := c.placement.Stages(c.ranks, c.chunks); err == nil {
			t.Errorf("%v, %d ranks, %d chunks: %d stages, want an error", c.placement, c.ranks, c.chunks, stages)
		}
	}
}

func TestParseTableForms(t *testing.T) {
	want := &Table{
		NumStages: 2, Microbatches: 1,
		Ranks: [][]Action{{{Stage: 0, Type: F, Microbatch: 0}, {Stage: 0, Type: B, Microbatch: 0}}, {{Stage: 1, Type: F, Microbatch: 0}, {Stage: 1, Type: B, Microbatch: 0}}},
	}
	for _, text := range []string{
		"0F0 0B0\n1F0 1B0",
		"0F0 0B0\n1F0 1B0\n",
		"0F0,0B0\r\n1F0,1B0\r\n",
		"0F0,,,0B0,\n,1F0,1B0,",
	} {
		got, err := ParseTable(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseTable(%q) = %+v, %v", text, got, err)
		}
	}
}

// TestParseTablePairs: ParseTable reads the pairs that String writes.
func TestParseTablePairs(t *testing.T) {
	table := generate(t, Spec{Schedule: DualPipeV, Ranks: 3, Chunks: 2, Microbatches: 6})
	table.Schedule = ""
	got, err := ParseTable(table.String())
	if err != nil || !reflect.DeepEqual(got, table) {
		t.Errorf("%s was read as %+v, %v", table, got, err)
	}
	_, err = ParseTable("0F0 (0F1;0F2)OVERLAP_F_B")
	want := `row 1, column 5: syntax error: pair "(0F1;0F2)OVERLAP_F_B": a pair is an F, and a B or I`
	if !errors.Is(err, ErrSyntax) || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func FuzzParseTable(f *testing.F) {
	for _, seed := range []string{
		"0F0 0B0", "0F0,,0B0\n,1F0,1B0\n", "0F0 0I0 0W0\n1F0 1B0\n", "0F1 0B1 0F0 0B0\n1F0 1B0 1F1 1B1",
		"0F0 3F0\n1F0 2F0", "0F67108863", "67108863F67108863", "\n", "0F0  0B0", "0F0 0F0", "1F0 0F0", "0F0 (0F1;0B0)OVERLAP_F_B 0B1", "0F0 (0B0;0F1)OVERLAP_F_B,0B1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTable(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("error %v is no ErrSyntax", err)
			}
			return
		}
		report, err := Check(table)
		if err != nil {
			return
		}
		again, err := ParseTable(table.String())
		if err != nil || !reflect.DeepEqual(again, table) {
			t.Fatalf("%q was read back as %+v, %v", table, again, err)
		}
		if _, err := SimulateCredits(table, UnitCosts, report.Credits); err != nil {
			t.Fatalf("a table that Check accepted does not run: %v", err)
		}
	})
}
