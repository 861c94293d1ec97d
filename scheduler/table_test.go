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
		rankOf, local []int // by chunk
	}{
		{Loop, 3, 1, []int{0, 1, 2}, []int{0, 0, 0}},
		{Loop, 2, 3, []int{0, 1, 0, 1, 0, 1}, []int{0, 0, 1, 1, 2, 2}},
		{V, 3, 2, []int{0, 1, 2, 2, 1, 0}, []int{0, 0, 0, 1, 1, 1}},
		{U, 3, 2, []int{0, 1, 2, 0}, []int{0, 0, 0, 1}},
		{V, 2, 3, []int{0, 1, 1, 0, 0, 1}, []int{0, 0, 1, 1, 2, 2}},
		{V, 3, 4, []int{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}, []int{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}},
		{V, 1, 2, []int{0, 0}, []int{0, 1}},
		{U, 1, 2, []int{0, 0}, []int{0, 1}},
	} {
		chunks, err := c.placement.Chunks(c.ranks, c.chunks)
		if err != nil || chunks != len(c.rankOf) {
			t.Errorf("%v on %d ranks: %d chunks, %v; want %d", c.placement, c.ranks, chunks, err, len(c.rankOf))
			continue
		}
		if err := c.placement.fits(chunks, c.ranks); err != nil {
			t.Error(err)
		}
		table := &Table{Placement: c.placement, NumChunks: chunks, Ranks: make([][]Action, c.ranks)}
		for s := range chunks {
			if table.RankOf(s) != c.rankOf[s] || table.localChunk(s) != c.local[s] {
				t.Errorf("%v on %d ranks: chunk %d is local chunk %d of rank %d, want %d of rank %d",
					c.placement, c.ranks, s, table.localChunk(s), table.RankOf(s), c.local[s], c.rankOf[s])
			}
		}
	}
}

func TestImpossiblePlaces(t *testing.T) {
	for _, c := range []struct {
		placement     Placement
		ranks, chunks int
	}{{V, 2, 1}, {U, 2, 3}, {U, 2, 1}, {U + 1, 2, 2}, {Loop, 0, 1}, {Loop, 1, -1}, {Loop, math.MaxInt, math.MaxInt}} {
		if chunks, err := c.placement.Chunks(c.ranks, c.chunks); err == nil {
			t.Errorf("%v, %d ranks, %d chunks: %d chunks, want an error", c.placement, c.ranks, c.chunks, chunks)
		}
	}
}

// parseTable reads rows of cells, separated by spaces or commas, without a check.
func parseTable(t testing.TB, text string) *Table {
	t.Helper()
	s := &csvTable{text: strings.ReplaceAll(text, " ", ","), table: &Table{ForwardOnly: true}}
	if err := s.read(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	s.table.Placement, _ = s.table.guessPlacement()
	return s.table
}
