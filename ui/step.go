package ui

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// errNoTrace: nothing is known of when the actions of a step ran.
var errNoTrace = errors.New("no step was recorded")

// picture is a step of the pipeline, ready to be drawn: what was measured and what was planned, the
// critical path, and why ranks waited.
type picture struct {
	step  int
	bytes []byte    // as the page takes it
	share []float64 // by chunk: its part of all ranks' busy time
	busy  []float64 // by rank
	ranks []int     // by chunk
}

// measured is when each rank ran what.
type measured struct {
	step     int
	schedule string
	table    *scheduler.Table
	times    [][][2]float64 // by rank and action: start and end, in ms since the first start
	hosts    []string       // by rank; nil: all are in one process
	clocks   []telemetry.Clock
	stepMS   float64 // with its update; 0: not known
	unplaced bool    // the table has no placement that is known: there is no plan of it
}

// fromTrace takes a line of trace.jsonl.
func fromTrace(name string, t telemetry.Trace) (*measured, error) {
	skips := make([]scheduler.Skip, len(t.Skips))
	for i, s := range t.Skips {
		skips[i] = scheduler.Skip{From: s[0], To: s[1]}
	}
	table, err := scheduler.ReadCSV(fmt.Sprintf("%s, the table of step %d", name, t.Step), t.Table, skips...)
	if err != nil {
		return nil, err
	}
	m := &measured{step: t.Step, schedule: t.Schedule, table: table, times: t.MS}
	if len(t.MS) != table.NumRanks() {
		return nil, fmt.Errorf("%s: step %d: times of %d ranks for a table of %d", name, t.Step, len(t.MS), table.NumRanks())
	}
	if len(t.Clocks) == len(t.MS) {
		m.clocks = t.Clocks
		for _, c := range t.Clocks {
			m.hosts = append(m.hosts, c.Host)
		}
	}
	return m, m.check(name)
}

// check refuses times that are none.
func (m *measured) check(name string) error {
	n := 0
	for r, row := range m.table.Ranks {
		if len(m.times[r]) != len(row) {
			return fmt.Errorf("%s: step %d: %d times for the %d actions of rank %d", name, m.step, len(m.times[r]), len(row), r)
		}
		if n += len(row); n > limitActions {
			return fmt.Errorf("%s: step %d has more than %d actions, which are not drawn", name, m.step, limitActions)
		}
		for i, at := range m.times[r] {
			if !(at[1] >= at[0]) || math.IsInf(at[0], 0) || math.IsInf(at[1], 0) {
				return fmt.Errorf("%s: step %d: %v on rank %d runs from %v to %v", name, m.step, row[i], r, at[0], at[1])
			}
		}
	}
	if n == 0 {
		return errNoTrace
	}
	return nil
}

// fromEvent takes what a live run has told of a step. Of a grid one rank of each stage is taken, as
// trace.jsonl has it.
func fromEvent(step int, trace [][]event.ActionTime, clocks []event.Clock, cfg *config.Config, schedule string) (*measured, error) {
	trace, clocks = firstPipeline(cfg, trace), firstPipeline(cfg, clocks)
	var begin time.Time
	for _, row := range trace {
		if len(row) > 0 && (begin.IsZero() || row[0].Start.Before(begin)) {
			begin = row[0].Start
		}
	}
	t := &scheduler.Table{Schedule: schedule, ForwardOnly: true, Ranks: make([][]scheduler.Action, len(trace))}
	m := &measured{step: step, schedule: schedule, table: t, times: make([][][2]float64, len(trace))}
	for r, row := range trace {
		for _, a := range row {
			if a.Action.Type < scheduler.F || a.Action.Type > scheduler.B || a.Action.Chunk < 0 || a.Action.Microbatch < 0 {
				return nil, fmt.Errorf("step %d: %v on rank %d is no action", step, a.Action, r)
			}
			t.NumChunks, t.Microbatches = max(t.NumChunks, int(a.Action.Chunk)+1), max(t.Microbatches, int(a.Action.Microbatch)+1)
			t.ForwardOnly = t.ForwardOnly && a.Action.Type == scheduler.F
			t.Ranks[r] = append(t.Ranks[r], a.Action)
			m.times[r] = append(m.times[r], [2]float64{msOf(a.Start.Sub(begin)), msOf(a.End.Sub(begin))})
		}
	}
	for _, c := range clocks {
		m.hosts = append(m.hosts, c.Process)
		m.clocks = append(m.clocks, telemetry.Clock{Host: c.Process, OffsetMS: msOf(c.Ahead), UncertaintyMS: msOf(c.Within)})
	}
	if err := m.check("the run"); err != nil {
		return nil, err
	}
	m.unplaced = !place(t)
	return m, nil
}

func msOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// firstPipeline is what is known of one rank of each stage.
func firstPipeline[T any](cfg *config.Config, ofRanks []T) []T {
	if cfg == nil || len(ofRanks) == cfg.Pipeline.Stages || len(ofRanks) == 0 {
		return ofRanks
	}
	g, err := grid.New(cfg.GridSizes())
	if err != nil || g.World() != len(ofRanks) {
		return ofRanks
	}
	first := make([]T, g.Size(grid.Pipeline))
	for stage := range first {
		first[stage] = ofRanks[g.Rank(grid.Coordinates{grid.Pipeline: stage})]
	}
	return first
}

// place finds the placement that puts every chunk on its rank.
func place(t *scheduler.Table) bool {
	for p := scheduler.Loop; p <= scheduler.U; p++ {
		perRank := (t.NumChunks + t.NumRanks() - 1) / t.NumRanks() // at most
		if n, err := p.Chunks(t.NumRanks(), perRank); err != nil || n != t.NumChunks {
			continue
		}
		fits := true
		for r, row := range t.Ranks {
			for _, a := range row {
				if p.Rank(int(a.Chunk), t.NumRanks()) != r {
					fits = false
					break
				}
			}
		}
		if fits {
			t.Placement = p
			return true
		}
	}
	return false
}

// header is what stands in front of the numbers.
type header struct {
	Step         int               `json:"step"`
	Schedule     string            `json:"schedule"`
	Chunks       int               `json:"chunks"`
	Microbatches int               `json:"microbatches"`
	Counts       []int             `json:"counts"` // of actions, by rank
	Makespan     float64           `json:"makespan_ms"`
	Planned      float64           `json:"planned_ms"` // 0: there is no plan
	BubblePct    float64           `json:"bubble_pct"`
	PlannedPct   float64           `json:"planned_bubble_pct"`
	IdealPct     float64           `json:"ideal_bubble_pct"`
	Busy         []float64         `json:"busy_ms"` // by rank
	Hosts        []string          `json:"hosts,omitempty"`
	Clocks       []telemetry.Clock `json:"clocks,omitempty"`
	Skips        [][2]int          `json:"skips,omitempty"`
	StepMS       float64           `json:"step_ms"` // with its update
	Causes       []string          `json:"causes"`
	Sums         [][]float64       `json:"sums_ms"` // by rank and cause
	Waits        [][3]float64      `json:"waits"`   // rank, rank that it waited for, ms: the longest sums first
	Gaps         int               `json:"gaps"`
	Critical     int               `json:"critical"`            // actions of the critical path
	ComputeMS    float64           `json:"critical_ms"`         // that they take
	MessageMS    float64           `json:"critical_message_ms"` // that it waits for messages
	RankMS       float64           `json:"critical_rank_ms"`    // and between actions of a rank
	Note         string            `json:"note,omitempty"`
}

// draw makes the picture of a measured step.
func (m *measured) draw() (*picture, error) {
	actual, sum := m.timeline()
	h := header{Step: m.step, Schedule: m.schedule, Chunks: m.table.NumChunks, Microbatches: m.table.Microbatches, Makespan: actual.Makespan, BubblePct: 100 * actual.BubbleFraction,
		Busy: actual.Busy, Hosts: m.hosts, Clocks: m.clocks}
	for _, s := range m.table.Skips {
		h.Skips = append(h.Skips, [2]int{s.From, s.To})
	}
	var planned *scheduler.Timeline
	var err error
	if m.unplaced {
		h.Note = "the chunks are on ranks by no placement that is known here: there is no plan to draw"
	} else {
		planned, err = scheduler.Simulate(m.table, sum.mean)
		if err == nil {
			h.Planned, h.PlannedPct = planned.Makespan, 100*planned.BubbleFraction
			var ideal *scheduler.Timeline
			if ideal, err = scheduler.Simulate(m.table, scheduler.UnitCosts); err == nil {
				h.IdealPct = 100 * ideal.BubbleFraction
			}
		}
		if err != nil {
			planned, h.Note = nil, fmt.Sprintf("there is no plan to draw: %v", err)
		}
	}
	h.StepMS = max(actual.Makespan, m.stepMS)
	why, err := m.analyse(h.StepMS)
	if err != nil {
		h.Note = fmt.Sprintf("why ranks waited can't be told: %v", err)
	}
	h.Causes, h.Sums, h.Waits, h.Gaps = causeNames, why.sums, why.waits, len(why.gaps)
	h.Critical, h.ComputeMS, h.MessageMS, h.RankMS = len(why.critical.Steps), why.critical.ComputeMS, why.critical.MessageMS, why.critical.RankMS

	p := &picture{step: m.step, share: sum.share(m.table.NumChunks), busy: actual.Busy, ranks: make([]int, m.table.NumChunks)}
	for r, row := range m.table.Ranks {
		for _, a := range row {
			p.ranks[a.Chunk] = r
		}
	}
	p.bytes, err = m.encode(h, actual, planned, why)
	return p, err
}

// means are the mean times of each type of action on each chunk.
type means struct {
	ms, n []float64 // by chunk and type
}

func (s *means) at(a scheduler.Action) int { return int(a.Chunk)*(int(scheduler.B)+1) + int(a.Type) }

func (s *means) mean(_ int, a scheduler.Action) float64 {
	k := s.at(a)
	return s.ms[k] / max(1, s.n[k])
}

func (s *means) share(chunks int) []float64 {
	share, all := make([]float64, chunks), 0.0
	for k, ms := range s.ms {
		share[k/(int(scheduler.B)+1)] += ms
		all += ms
	}
	for c := range share {
		share[c] /= max(all, math.SmallestNonzeroFloat64)
	}
	return share
}

// timeline is the step as the simulator would tell it.
func (m *measured) timeline() (*scheduler.Timeline, *means) {
	ranks := len(m.times)
	tl := &scheduler.Timeline{Start: make([][]float64, ranks), End: make([][]float64, ranks), Busy: make([]float64, ranks), Idle: make([]float64, ranks)}
	n := m.table.NumChunks * (int(scheduler.B) + 1)
	s := &means{make([]float64, n), make([]float64, n)}
	for r, row := range m.table.Ranks {
		for i := 0; i < len(row); {
			at, width := m.times[r][i], min(scheduler.Width(row, i), len(row)-i) // a pair has one time
			all := 0.0
			for _, a := range row[i : i+width] {
				all += scheduler.UnitCosts(r, a)
			}
			for _, a := range row[i : i+width] {
				tl.Start[r], tl.End[r] = append(tl.Start[r], at[0]), append(tl.End[r], at[1])
				k := s.at(a)
				s.ms[k] += (at[1] - at[0]) * scheduler.UnitCosts(r, a) / all
				s.n[k]++
			}
			tl.Busy[r] += at[1] - at[0]
			i += width
		}
		if len(row) > 0 {
			tl.Makespan = max(tl.Makespan, m.times[r][len(row)-1][1])
		}
	}
	busy := 0.0
	for _, b := range tl.Busy {
		busy += b
	}
	if all := tl.Makespan * float64(ranks); all > 0 {
		tl.BubbleFraction = max(0, (all-busy)/all)
	}
	return tl, s
}

// Bits of an action's flags.
const (
	flagCritical = 1 << iota
	flagPair     // runs as one with the next
)

// encode writes the magic "TRP1", the length of the header and the header, each array aligned to 4
// bytes: of all actions, rank by rank, starts, ends, planned starts and planned ends (float32, ms),
// chunks and microbatches (int32), types and flags (uint8); of the gaps, starts and ends (float32),
// ranks, ranks waited for, chunks and microbatches waited for (int32; −1: none), causes and types
// (uint8). All little-endian.
func (m *measured) encode(h header, actual, planned *scheduler.Timeline, why *reasons) ([]byte, error) {
	n := 0
	for _, row := range m.table.Ranks {
		h.Counts = append(h.Counts, len(row))
		n += len(row)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	for len(head)%4 != 0 {
		head = append(head, ' ')
	}
	b := make([]byte, 0, 8+len(head)+n*26+h.Gaps*26+16)
	b = append(b, "TRP1"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head))) //nolint:gosec // far below 2³²
	b = append(b, head...)
	floats := func(rows [][]float64) {
		for _, row := range rows {
			for _, v := range row {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			}
		}
	}
	floats(actual.Start)
	floats(actual.End)
	if planned != nil {
		floats(planned.Start)
		floats(planned.End)
	}
	for _, row := range m.table.Ranks {
		for _, a := range row {
			b = binary.LittleEndian.AppendUint32(b, uint32(a.Chunk)) //nolint:gosec // from 0
		}
	}
	for _, row := range m.table.Ranks {
		for _, a := range row {
			b = binary.LittleEndian.AppendUint32(b, uint32(a.Microbatch)) //nolint:gosec // from 0
		}
	}
	for _, row := range m.table.Ranks {
		for _, a := range row {
			b = append(b, byte(a.Type))
		}
	}
	for r, row := range m.table.Ranks {
		for i, a := range row {
			var flags byte
			if why.path[r][i] {
				flags |= flagCritical
			}
			if a.Overlap {
				flags |= flagPair
			}
			b = append(b, flags)
		}
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	for _, g := range why.gaps {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(g.Start)))
	}
	for _, g := range why.gaps {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(g.End)))
	}
	for _, of := range []func(g gap) int32{func(g gap) int32 { return g.rank }, func(g gap) int32 { return int32(g.From) }, func(g gap) int32 { return g.Needs.Chunk }, func(g gap) int32 { return g.Needs.Microbatch }} {
		for _, g := range why.gaps {
			b = binary.LittleEndian.AppendUint32(b, uint32(of(g))) //nolint:gosec // −1 comes back as −1
		}
	}
	for _, g := range why.gaps {
		b = append(b, byte(g.Cause))
	}
	for _, g := range why.gaps {
		b = append(b, byte(g.Needs.Type))
	}
	return b, nil
}
