package grid_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
)

// TestEdge: whatever the sizes and the way, each rank gets every position that it needs once, from a rank that
// has it.
func TestEdge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.IntRange(1, 9).Draw(t, "from"), rapid.IntRange(1, 9).Draw(t, "to")
		slices := rapid.Bool().Draw(t, "slices")
		way := grid.Way(rapid.IntRange(0, 3).Draw(t, "way"))
		e := grid.NewEdge(from, to, slices, way)
		got := make([][]int, to) // how often each unit comes to each rank
		for r := range got {
			got[r] = make([]int, e.Units)
		}
		sent := 0
		for sender := range from {
			has, end := e.Has(sender)
			for _, p := range e.Sends(sender) {
				sent++
				if !p.Empty() && (p.First < has || p.Limit > end) {
					t.Fatalf("%+v: rank %d sends %+v and has %d to %d", e, sender, p, has, end)
				}
			}
		}
		if sent != len(e.Pieces) {
			t.Fatalf("%d of %d pieces are sent", sent, len(e.Pieces))
		}
		for receiver := range to {
			last := 0
			for i, p := range e.Takes(receiver) {
				if p.Part != i {
					t.Fatalf("rank %d: piece %d is called %d", receiver, i, p.Part)
				}
				if !p.Empty() && p.First < last {
					t.Fatalf("rank %d: the pieces are not in order: %+v", receiver, e.Pieces)
				}
				last = p.Limit
				for u := p.First; u < p.Limit; u++ {
					got[receiver][u]++
				}
			}
			first, limit := e.Wants(receiver)
			for u, n := range got[receiver] {
				want := 0
				if u >= first && u < limit && (e.Way != grid.Broadcast || receiver == 0) {
					want = 1
				}
				if n != want {
					t.Fatalf("%+v: unit %d comes to rank %d %d times, want %d", e, u, receiver, n, want)
				}
			}
		}
		if e.Slices && e.Copies() != 1 || e.Way == grid.Broadcast && e.Copies() != 1 || e.Way == grid.Scatter && e.Copies() != 1 {
			t.Fatalf("%+v carries a tensor %v times", e, e.Copies())
		}
	})
}

func TestEdgeWays(t *testing.T) {
	for _, c := range []struct {
		from, to int
		slices   bool
		way      grid.Way
		want     string
	}{
		{1, 1, false, grid.Auto, "direct"},
		{2, 2, false, grid.Auto, "ranks 0 to 1 send to their counterparts"},
		{1, 2, false, grid.Auto, "broadcast: rank 0 of 1 sends, and rank 0 of 2 broadcasts"},
		{4, 2, false, grid.Auto, "direct: ranks 0 to 1 send"},
		{2, 1, false, grid.Broadcast, "direct: rank 0 of 2 sends"},
		{2, 2, false, grid.Broadcast, "broadcast: rank 0 of 2 sends, and rank 0 of 2"},
		{2, 4, false, grid.Direct, "direct: 2 ranks send to 4"},
		{2, 4, false, grid.Scatter, "scatter: each of 2 ranks sends parts, and 4 gather"},
		{2, 3, true, grid.Broadcast, "direct: the 3 receiving get their positions from the 2 sending"},
		{2, 2, true, grid.Auto, "direct: each of 2 ranks sends its positions"},
	} {
		if got := grid.NewEdge(c.from, c.to, c.slices, c.way).String(); !strings.Contains(got, c.want) {
			t.Errorf("%d to %d, slices %v, %v: %q, want %q", c.from, c.to, c.slices, c.way, got, c.want)
		}
	}
	for w := grid.Auto; w <= grid.Scatter; w++ {
		if got, err := grid.ParseWay(w.String()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := grid.ParseWay("pigeon"); err == nil {
		t.Error("a way of any name")
	}
}
