package draw

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

func TestFiguresAreThoseOfScheduler(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	everySchedule(t, func(t *testing.T, p plan) {
		c := p.chart()
		f := c.Figures()
		if f.Makespan != p.timeline.Makespan || !near(f.BubbleFraction, p.timeline.BubbleFraction) {
			t.Errorf("makespan %v, bubble %v; scheduler says %v, %v",
				f.Makespan, f.BubbleFraction, p.timeline.Makespan, p.timeline.BubbleFraction)
		}
		if !slices.EqualFunc(f.Busy, p.timeline.Busy, near) || !slices.EqualFunc(f.Idle, p.timeline.Idle, near) {
			t.Errorf("busy %v, idle %v; scheduler says %v, %v", f.Busy, f.Idle, p.timeline.Busy, p.timeline.Idle)
		}
		if !slices.Equal(f.PeakInFlight, p.report.PeakInFlight) {
			t.Errorf("peak in flight %v, scheduler says %v", f.PeakInFlight, p.report.PeakInFlight)
		}
	})
}

func TestFiguresOfOverlappingActions(t *testing.T) {
	f := func(m int32) scheduler.Action { return scheduler.Action{Type: scheduler.F, Microbatch: m} }
	c := Chart{Unit: Milliseconds, Lanes: []Lane{
		{Actions: []scheduler.Action{f(0), f(1), f(2)}, Start: []float64{1, 2, 8}, End: []float64{4, 3, 10}},
		{},
	}}
	got := c.Figures()
	if !slices.Equal(got.Busy, []float64{5, 0}) || !slices.Equal(got.Idle, []float64{4, 0}) {
		t.Errorf("busy %v, idle %v, want [5 0] and [4 0]", got.Busy, got.Idle)
	}
	if got.Makespan != 10 || got.BubbleFraction != 0.75 {
		t.Errorf("makespan %v, bubble %v, want 10 and 0.75", got.Makespan, got.BubbleFraction)
	}
}

func TestPeakToInputGradient(t *testing.T) {
	for _, c := range []struct {
		name, table string
		want        []int
	}{
		{"whole backward", "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", []int{2, 1}},
		{"late weight gradients", "0F0 0F1 0I0 0F2 0I1 0I2 0W0 0W1 0W2", []int{2}},
		{"both", "0F0 0I0 0F1 0B1 0W0", []int{1}},
		{"forward only", "0F0 0F1 0F2", []int{1}},
	} {
		table, err := scheduler.ReadCSV("", strings.ReplaceAll(c.table, " ", ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := PeakToInputGradient(table); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// PyTorch's table of interleaved ZB1P, 2 ranks, 4 chunks and 8 microbatches: it
// holds 4 and 3 outputs to their input gradient, 4 and 4 to their
// weight gradient.
func TestPeaksOfAPublishedTable(t *testing.T) {
	text, err := os.ReadFile("testdata/pytorch_zb1p_p2_v2_m8.csv")
	if err != nil {
		t.Fatal(err)
	}
	table, err := scheduler.ReadCSV("", string(text))
	if err != nil {
		t.Fatal(err)
	}
	report, err := scheduler.Check(table)
	if err != nil {
		t.Fatal(err)
	}
	if got := PeakToInputGradient(table); !slices.Equal(got, []int{4, 3}) {
		t.Errorf("to the input gradient %v, want [4 3]", got)
	}
	if !slices.Equal(report.PeakInFlight, []int{4, 4}) {
		t.Errorf("in flight %v, want [4 4]", report.PeakInFlight)
	}
}

func TestPeakToInputGradientIsAtMostInFlight(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		for r, n := range PeakToInputGradient(p.table) {
			if n < 1 || n > p.report.PeakInFlight[r] {
				t.Errorf("rank %d holds %d to the input gradient, %d in flight", r, n, p.report.PeakInFlight[r])
			}
		}
	})
}

func TestMessagesAreAllThatTheTableSends(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		c := p.chart()
		seen := make(map[message]bool)
		for m := range c.messages() {
			from, to := c.Lanes[m.from.lane].Actions[m.from.at], c.Lanes[m.to.lane].Actions[m.to.at]
			step := int32(1)
			if m.kind == scheduler.BackwardEdge {
				step = -1
			}
			if to.Chunk != from.Chunk+step || to.Microbatch != from.Microbatch {
				t.Errorf("%s message from %v to %v", m.kind, from, to)
			}
			if end, start := c.Lanes[m.from.lane].End[m.from.at], c.Lanes[m.to.lane].Start[m.to.at]; end > start {
				t.Errorf("message from %v, which ends at %v, to %v, which starts at %v", from, end, to, start)
			}
			seen[m] = true
		}
		want := 2 * (p.table.NumChunks - 1) * p.table.Microbatches
		if p.table.ForwardOnly {
			want /= 2
		}
		if len(seen) != want {
			t.Errorf("%d messages, want %d", len(seen), want)
		}
	})
}
