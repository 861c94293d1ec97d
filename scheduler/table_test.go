package scheduler

import (
	"math"
	"strings"
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

// parseTable reads rows of cells, separated by spaces or commas, without a check.
func parseTable(t testing.TB, text string) *Table {
	t.Helper()
	s := &sheet{text: strings.ReplaceAll(text, " ", ","), table: &Table{ForwardOnly: true}}
	if err := s.read(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	s.table.Placement, _ = s.table.guessPlacement()
	return s.table
}
