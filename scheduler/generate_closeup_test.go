package scheduler

import (
	"slices"
	"strings"
	"testing"
)

func act(t *testing.T, text string) Action {
	t.Helper()
	c, err := parseCell(text)
	if err != nil {
		t.Fatal(err)
	}
	return c.actions[0]
}

// closeUpOf is that of a rank of a table.
func closeUpOf(t *testing.T, rank int, text string, bound int) closeUpPolicy {
	t.Helper()
	table := parseTable(t, text)
	return closeUpPolicy{newCloseUp(table, rank, table.Ranks[rank], bound)}
}

// runs begins and ends what the rank chooses until it chooses nothing.
func (p closeUpPolicy) runs(t *testing.T, want string) {
	t.Helper()
	var did []string
	for next := p.next(0, nil); len(next) > 0; next = p.next(0, nil) {
		did = append(did, next[0].String())
		a := next[0]
		p.begin(0, a)
		p.end(0, a)
	}
	if got := strings.Join(did, " "); got != want {
		t.Errorf("runs %q, want %q", got, want)
	}
}

// TestCloseUpOvertakes: the row is the order, as far as inputs are there.
func TestCloseUpOvertakes(t *testing.T) {
	const table = "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\n1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2"
	p := closeUpOf(t, 0, table, 2)
	p.runs(t, "0F0 0F1") // a third is beyond the bound
	p.arrived(0, act(t, "0I0"))
	p.runs(t, "0I0 0W0 0F2")
	p.arrived(0, act(t, "0I1"))
	p.arrived(0, act(t, "0I2"))
	p.runs(t, "0I1 0W1 0I2 0W2")
	if p[0].cursor != len(p[0].row) {
		t.Errorf("%v is left", p[0].row[p[0].cursor])
	}

	closeUpOf(t, 0, table, 3).runs(t, "0F0 0F1 0F2") // with room for a third
}

// TestCloseUpLeavesRoom: a forward of the first chunk doesn't take the room of the
// second's, which comes first in the row; the lowest microbatch's may always go.
func TestCloseUpLeavesRoom(t *testing.T) {
	// One rank holds both chunks, so that only arrived delays 1F0.
	const table = "0F0 0F1 1F0 1F1 1I0 1W0 0I0 0W0 0F2 1F2 1I1 1W1 0I1 0W1 1I2 1W2 0I2 0W2"
	p := closeUpOf(t, 0, table, 4)
	p.runs(t, "0F0 0F1") // 0F2 would take the room of 1F1
	p.arrived(0, act(t, "1F0"))
	p.arrived(0, act(t, "1F1"))
	p.runs(t, "1F0 1F1 1I0 1W0 0F2 1I1 1W1") // there is room when 1W0 has ended

	closeUpOf(t, 0, table, 5).runs(t, "0F0 0F1 0F2")

	// With a bound below what the row holds, 1F0 takes the room of 0F2.
	p = closeUpOf(t, 0, "0F0 0F1 0F2 1F0 1I0 1W0 0I0 0W0 1F1 1I1 1W1 0I1 0W1 1F2 1I2 1W2 0I2 0W2", 3)
	p.runs(t, "0F0 0F1") // with 0F2, microbatch 0 could not finish
	p.arrived(0, act(t, "1F0"))
	p.runs(t, "1F0 1I0 1W0 0F2")
}

// TestCloseUpGains: v-half's pattern ends earlier closed up, is the same work, and stays within the bound.
func TestCloseUpGains(t *testing.T) {
	gains := 0
	for ranks := 2; ranks <= 8; ranks++ {
		s := Spec{Schedule: VHalf, Ranks: ranks, Chunks: 2, Microbatches: 3 * ranks}
		bound := ranks + 2
		rows, err := s.bounded(vHalfSlopes, bound)
		if err != nil {
			t.Fatal(err)
		}
		pattern := &Table{Placement: V, NumChunks: 2 * ranks, Microbatches: s.Microbatches, Ranks: rows}
		closed := generate(t, s)
		report := check(t, closed)
		was, is := simulated(t, pattern, UnitCosts).Makespan, simulated(t, closed, UnitCosts).Makespan
		if is > was || report.OutOfOrder.Any() || slices.Max(report.PeakInFlight) > bound || closed.numActions() != pattern.numActions() {
			t.Errorf("%d ranks: makespan %v, the pattern's is %v; %+v", ranks, is, was, report)
		}
		if is < was {
			gains++
		}
	}
	if gains == 0 {
		t.Error("closing up gains nothing")
	}
}

// TestCloseUpAllocatesNothing: not even in its first step.
func TestCloseUpAllocatesNothing(t *testing.T) {
	table := generate(t, Spec{Schedule: ZB1P, Ranks: 1, Chunks: 3, Microbatches: 16})
	var fresh []closeUpPolicy
	for range 11 { // and one to warm up
		fresh = append(fresh, closeUpPolicy{newCloseUp(table, 0, table.Ranks[0], 48)})
	}
	i := 0
	n := testing.AllocsPerRun(10, func() {
		p := fresh[i]
		i++
		for next := p.next(0, nil); len(next) > 0; next = p.next(0, nil) {
			a := next[0]
			p.begin(0, a)
			p.end(0, a)
			if kind, ok := a.Type.edge(); ok {
				if to, ok := kind.to(int(a.Chunk), table.NumChunks); ok {
					a.Chunk = int32(to)
					p.arrived(0, a)
				}
			}
		}
	})
	if left := len(table.Ranks[0]) - fresh[0][0].cursor; n != 0 || left > 0 {
		t.Errorf("a step allocates %v times, %d actions are left", n, left)
	}
}
