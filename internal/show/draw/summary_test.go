package draw

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// read is a summary as another program sees it.
type read struct {
	Schedule            string
	Placement           string
	Ranks               int
	Chunks              int
	Microbatches        int
	Actions             int
	Makespan            float64
	BubbleFraction      float64 `json:"bubble_fraction"`
	Period              float64
	Idle                []float64
	Utilisation         []float64
	PeakInFlight        []int `json:"peak_in_flight"`
	PeakToInputGradient []int `json:"peak_to_input_gradient"`
	RendezvousSafe      *bool `json:"rendezvous_safe"`
	Table               [][]string
}

func readSummary(t *testing.T, text string) read {
	t.Helper()
	var s read
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return s
}

func TestSummaryIsWhatSchedulerSays(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		s := readSummary(t, drawn(t, p.summary(false)))
		actions := 0
		busy := 0.0
		for r, row := range p.table.Ranks {
			actions += len(row)
			busy += p.timeline.Busy[r]
			if cells := strings.Split(p.table.String(), "\n")[r]; strings.Join(s.Table[r], " ") != cells {
				t.Errorf("row %d is %v, want %s", r, s.Table[r], cells)
			}
		}
		for r, u := range s.Utilisation {
			if math.Abs(u*s.Makespan-p.timeline.Busy[r]) > 1e-9 {
				t.Errorf("rank %d is used to %v of %v, want %v", r, u, s.Makespan, p.timeline.Busy[r])
			}
		}
		if s.RendezvousSafe == nil || *s.RendezvousSafe != scheduler.RendezvousSafe(p.table) || len(s.Utilisation) != s.Ranks {
			t.Errorf("rendezvous_safe %v, %d utilisations", s.RendezvousSafe, len(s.Utilisation))
		}
		all := s.Makespan * float64(s.Ranks)
		if math.Abs(s.BubbleFraction-(all-busy)/all) > 1e-12 || s.Makespan != p.timeline.Makespan || s.Actions != actions {
			t.Errorf("%+v for a makespan of %v, busy %v, %d actions", s, p.timeline.Makespan, busy, actions)
		}
		if s.Schedule != p.table.Schedule || s.Placement != p.table.Placement.String() || s.Ranks != len(p.table.Ranks) ||
			s.Chunks != p.table.NumChunks || s.Microbatches != p.table.Microbatches {
			t.Errorf("%+v for a table of %s", s, title(p.table))
		}
		if !slices.Equal(s.Idle, p.timeline.Idle) || !slices.Equal(s.PeakInFlight, p.report.PeakInFlight) ||
			!slices.Equal(s.PeakToInputGradient, PeakToInputGradient(p.table)) {
			t.Errorf("%+v, want idle %v and peaks %v", s, p.timeline.Idle, p.report.PeakInFlight)
		}
	})
}

func TestSummaryTellsThePeriodThatIsKnown(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	if text := drawn(t, p.summary(false)); strings.Contains(text, "period") {
		t.Errorf("nobody asked for a period:\n%s", text)
	}
	known := *p.timeline
	known.SteadyStateStep = 48
	p.timeline = &known
	if s := readSummary(t, drawn(t, p.summary(false))); s.Period != 48 {
		t.Errorf("period %v, want 48", s.Period)
	}
}

func TestSummaryLeavesLargeTablesOut(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	large := *p.table
	large.Schedule = ""
	row := slices.Repeat(p.table.Ranks[0], MaxListed/4/len(p.table.Ranks[0]))
	large.Ranks = [][]scheduler.Action{row, row, row, append(slices.Clone(row), row[0])}
	big := plan{&large, p.report, p.timeline}
	short := drawn(t, big.summary(false))
	if s := readSummary(t, short); s.Table != nil || s.Actions != MaxListed+1 || s.Schedule != "" || strings.Contains(short, "table") {
		t.Errorf("a table of %d actions is listed, or its schedule made up:\n%.300s", s.Actions, short)
	}
	if s := readSummary(t, drawn(t, big.summary(true))); len(s.Table) != 4 || len(s.Table[3]) != len(row)+1 {
		t.Errorf("the full table has %d rows", len(s.Table))
	}
	once := testing.AllocsPerRun(1, func() { _ = Summary(io.Discard, &large, p.report, p.timeline, true) })
	if once > 200 {
		t.Errorf("%v allocations for %d actions, want a fixed number", once, MaxListed+1)
	}
}

func TestSummaryRefusesWhatDoesNotBelongTogether(t *testing.T) {
	p, other := makePlan(t, goldenSpecs[0].spec), makePlan(t, goldenSpecs[3].spec)
	infinite := *p.timeline
	infinite.Makespan = math.Inf(1)
	for _, c := range []plan{
		{p.table, p.report, other.timeline}, {p.table, other.report, p.timeline}, {p.table, p.report, &infinite},
	} {
		var out bytes.Buffer
		if err := c.summary(false)(&out); !errors.Is(err, ErrChart) || out.Len() > 0 {
			t.Errorf("error %v and %d bytes, want ErrChart and none", err, out.Len())
		}
	}
}

// A table that takes no time has no use of it either: no number that JSON cannot hold.
func TestSummaryOfNoTime(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	free, err := scheduler.Simulate(p.table, func(int, scheduler.Action) float64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	p.timeline = free
	text := drawn(t, p.summary(false), p.chart())
	if !strings.Contains(text, `"makespan": 0,`) || !strings.Contains(text, `"utilisation": [0,0,0,0],`) {
		t.Errorf("want a makespan of 0 and no use: %s", text)
	}
}
