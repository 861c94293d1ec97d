package draw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// skipPlan is a table with a skip from its first chunk to its last, and one a chunk shorter.
func skipPlan(t *testing.T, s scheduler.Spec) (p plan, without int) {
	t.Helper()
	p = makePlan(t, s)
	c := p.chart()
	for range c.messages() {
		without++
	}
	last := p.table.NumChunks - 1
	if err := p.table.SetSkips([]scheduler.Skip{{From: 0, To: last - 1}, {From: 0, To: last}}); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.report, p.timeline, err = scheduler.Analyse(p.table); err != nil {
		t.Fatal(err)
	}
	return p, without
}

// TestSkipMessages: skips have their messages beside the neighbours', from the ends of the
// actions that send them to the starts of those that need them.
func TestSkipMessages(t *testing.T) {
	for _, s := range []scheduler.Spec{
		{Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8},
		{Schedule: scheduler.Interleaved, Ranks: 2, Chunks: 2, Microbatches: 4},
		{Schedule: scheduler.ZBV, Ranks: 4, Chunks: 2, Microbatches: 8},
		{Schedule: scheduler.DualPipeV, Ranks: 4, Chunks: 2, Microbatches: 10},
		{Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8, ForwardOnly: true},
	} {
		p, without := skipPlan(t, s)
		chart, all, skips := p.chart(), 0, 0
		for m := range chart.messages() {
			all++
			if !m.skip {
				continue
			}
			skips++
			from, to := chart.Lanes[m.from.lane], chart.Lanes[m.to.lane]
			a, b := from.Actions[m.from.at], to.Actions[m.to.at]
			if m.kind == scheduler.BackwardEdge {
				a, b = b, a
			}
			last := int32(p.table.NumChunks - 1)
			if a.Microbatch != b.Microbatch || a.Chunk != 0 || b.Chunk < last-1 || from.End[m.from.at] > to.Start[m.to.at] {
				t.Errorf("%s: a %s message between %v and %v", s.Schedule, m.kind, a, b)
			}
		}
		want := 2 * 2 * s.Microbatches
		if s.ForwardOnly {
			want /= 2
		}
		if skips != want || all != without+want {
			t.Errorf("%s: %d messages, %d of them of skips, want %d of them and %d others", s.Schedule, all, skips, want, without)
		}
		for _, charts := range [][]Chart{{chart}, {chart, p.measured()}} {
			text := drawn(t, Perfetto, charts...)
			if err := checkTrace(text, charts); err != nil {
				t.Errorf("%s: %v", s.Schedule, err)
			}
			if n := strings.Count(text, "skip activation from chunk 0 to chunk "); n != len(charts)*2 {
				t.Errorf("%s: %d counters of skip activations", s.Schedule, n)
			}
		}
	}
}

// TestSkipsInDrawings: a page knows the skips for its arrows, the other formats name them.
func TestSkipsInDrawings(t *testing.T) {
	p, _ := skipPlan(t, scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8})
	for _, h := range stepsIn(t, drawn(t, HTML, p.chart(), p.measured())) {
		if fmt.Sprint(h.Skips) != "[[0 2] [0 3]]" {
			t.Errorf("the page has the skips %v", h.Skips)
		}
	}
	if text := drawn(t, ascii(0), p.chart()); !strings.Contains(text, "4 ranks, 2 skips, 8 microbatches") {
		t.Errorf("the text names no skips:\n%s", text)
	}
	var out bytes.Buffer
	if err := Summary(&out, p.table, p.report, p.timeline, false); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Skips   [][2]int
		Credits [][2]int `json:"skip_credits"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	c := p.report.Credits
	if len(got.Skips) != 2 || got.Skips[1] != [2]int{0, 3} || len(got.Credits) != 2 ||
		got.Credits[1] != [2]int{c.SkipForward[1], c.SkipBackward[1]} {
		t.Errorf("the summary has skips %v with credits %v", got.Skips, got.Credits)
	}
	without := *p.report
	without.Credits.SkipForward = nil
	if err := Summary(&out, p.table, &without, p.timeline, false); !errors.Is(err, ErrChart) {
		t.Errorf("a report without skips: %v, want ErrChart", err)
	}
}

func TestImpossibleSkips(t *testing.T) {
	p := makePlan(t, scheduler.Spec{Ranks: 4, Chunks: 1, Microbatches: 2})
	for _, s := range []scheduler.Skip{{From: -1, To: 3}, {From: 2, To: 3}, {From: 3, To: 0}, {From: math.MaxInt, To: math.MinInt},
		{From: 0, To: math.MaxInt32 + 1}} {
		c := p.chart()
		c.Skips = []scheduler.Skip{s}
		for name, write := range formats {
			if err := write(&bytes.Buffer{}, c); !errors.Is(err, ErrChart) {
				t.Errorf("%v, %s: %v, want ErrChart", s, name, err)
			}
		}
	}
	c := p.chart()
	c.Skips = []scheduler.Skip{{From: 0, To: 9}} // a chunk that a measured run may not have come to
	drawn(t, Perfetto, c)
}
