package draw

import (
	"embed"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/scheduler"
)

// BrowserFiles are the scripts and the style with which a page draws a step, in the folder page: step.js decodes a
// step, pipeline.js draws it, dom.js has helpers, and pipeline.css the colors.
//
//go:embed page/dom.js page/step.js page/pipeline.js page/static.js page/pipeline.css
var BrowserFiles embed.FS

// Drawing is a step in the form of a page's script.
type Drawing struct {
	Bytes  []byte    // the data that step.js decodes
	Busy   []float64 // busy time by rank in ms
	Shares []float64 // by chunk: its share of all ranks' busy time
	Ranks  []int     // rank by chunk
}

// stepHeader is the JSON header before the arrays of numbers.
type stepHeader struct {
	Step         int               `json:"step"` // 0: the step was simulated
	Unit         string            `json:"unit"` // of all times
	Schedule     string            `json:"schedule"`
	Chunks       int               `json:"chunks"`
	Microbatches int               `json:"microbatches"`
	Counts       []int             `json:"counts"` // of actions, by rank
	Makespan     float64           `json:"makespan_ms"`
	Planned      float64           `json:"planned_ms"` // 0: the drawing has no plan
	BubblePct    float64           `json:"bubble_pct"`
	PlannedPct   float64           `json:"planned_bubble_pct"`
	IdealPct     float64           `json:"ideal_bubble_pct"`
	Busy         []float64         `json:"busy_ms"` // by rank
	Hosts        []string          `json:"hosts,omitempty"`
	Clocks       []scheduler.Clock `json:"clocks,omitempty"`
	Skips        [][2]int          `json:"skips,omitempty"`
	StepMS       float64           `json:"step_ms"`               // with its update
	ExchangeMS   float64           `json:"exchange_ms,omitempty"` // of tokens, on all links together
	HiddenMS     float64           `json:"hidden_ms,omitempty"`   // how long of that the ranks computed
	Causes       []string          `json:"causes"`
	Sums         [][]float64       `json:"sums_ms"` // by rank and cause
	Waits        [][3]float64      `json:"waits"`   // rank, rank that it waited for, ms: the longest sums first
	Gaps         int               `json:"gaps"`
	Critical     int               `json:"critical"`            // actions of the critical path
	ComputeMS    float64           `json:"critical_ms"`         // that they take
	MessageMS    float64           `json:"critical_message_ms"` // that it waits for messages
	CreditMS     float64           `json:"critical_credit_ms"`  // and for credits
	RankMS       float64           `json:"critical_rank_ms"`    // and between actions of a rank
	Note         string            `json:"note,omitempty"`
}

// ForBrowser returns the drawing of a measured step with its plan. It fails with ErrTooLarge for more than
// MaxStepActions actions, and if the step's Check fails. If the table cannot be simulated, the drawing has no plan
// and a note about it.
func ForBrowser(s *scheduler.Step) (*Drawing, error) { return forBrowser(s, Milliseconds, true) }

func forBrowser(s *scheduler.Step, unit string, measured bool) (*Drawing, error) {
	n := 0
	for _, row := range s.Table.Ranks {
		n += len(row)
	}
	if n > MaxStepActions {
		return nil, fmt.Errorf("%w: step %d has %d actions, the limit is %d", ErrTooLarge, s.Number, n, MaxStepActions)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	actual := s.Timeline()
	h := stepHeader{Step: s.Number, Unit: unit, Schedule: s.Table.Schedule, Chunks: s.Table.NumChunks, Microbatches: s.Table.Microbatches,
		Makespan: actual.Makespan, BubblePct: 100 * actual.BubbleFraction, Busy: actual.Busy, Clocks: s.Clocks,
		StepMS: max(actual.Makespan, s.StepMS)}
	chart := FromTimeline(s.Table, actual)
	h.ExchangeMS, h.HiddenMS = chart.exchanged()
	for _, c := range s.Clocks {
		h.Hosts = append(h.Hosts, c.Host)
	}
	for _, skip := range s.Table.Skips {
		h.Skips = append(h.Skips, [2]int{skip.From, skip.To})
	}
	var planned *scheduler.Timeline
	if measured {
		var err error
		if planned, err = s.Plan(); err != nil {
			h.Note = fmt.Sprintf("The plan cannot be drawn: %v. ", err)
		} else {
			h.Planned, h.PlannedPct = planned.Makespan, 100*planned.BubbleFraction
		}
		if ideal, err := scheduler.Simulate(s.Table, scheduler.UnitCosts); err == nil {
			h.IdealPct = 100 * ideal.BubbleFraction
		}
	}
	whole := *s
	whole.StepMS = h.StepMS
	why, err := analyse(&whole)
	if err != nil {
		h.Note += fmt.Sprintf("The causes of waits are not known: %v.", err)
	}
	h.Causes, h.Sums, h.Waits, h.Gaps = causeNames, why.sums, why.waits, len(why.gaps)
	h.Critical, h.ComputeMS, h.MessageMS = len(why.critical.Steps), why.critical.ComputeMS, why.critical.MessageMS
	h.CreditMS, h.RankMS = why.critical.CreditMS, why.critical.RankMS

	d := &Drawing{Busy: actual.Busy, Shares: make([]float64, s.Table.NumChunks), Ranks: make([]int, s.Table.NumChunks)}
	all := 0.0
	for r, row := range s.Table.Ranks {
		for i, a := range row {
			if a.Type.IsExchange() { // it takes the link
				continue
			}
			took := s.Took(r, i)
			d.Ranks[a.Chunk], d.Shares[a.Chunk] = r, d.Shares[a.Chunk]+took
			all += took
		}
	}
	for c := range d.Shares {
		d.Shares[c] /= max(all, math.SmallestNonzeroFloat64)
	}
	d.Bytes, err = encode(s, h, actual, planned, why)
	return d, err
}
