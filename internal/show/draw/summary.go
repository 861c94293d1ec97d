package draw

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/troupe-ml/troupe/scheduler"
)

// Summary writes the numbers of a table as one JSON object:
//
//	schedule, placement       names; schedule is left out where it isn't known
//	ranks, chunks, microbatches, actions   counts
//	skips                     [from, to] of each, where there are any, with the credits
//	skip_credits              of their activations and gradients
//	makespan, bubble_fraction   of the timeline
//	period                    from step to step, where the timeline has it
//	idle                      by rank: waiting between its first and last action
//	utilisation               by rank: its actions' share of the makespan
//	peak_in_flight            by rank, outputs from F to B or W
//	peak_to_input_gradient    by rank, outputs from F to B or I
//	rendezvous_safe           whether it would run without buffers, too
//	table                     an array of cells for each rank: "0F3", a pair
//	                          "(0F5;7B3)OVERLAP_F_B", or its parts
//
// Times are in the unit of the timeline's costs. Above [MaxListed] actions it leaves out rendezvous_safe, and the
// table unless full is set. Its memory does not grow with the number of actions.
func Summary(w io.Writer, t *scheduler.Table, report *scheduler.Report, tl *scheduler.Timeline, full bool) error {
	ranks := t.NumRanks()
	if len(tl.Idle) != ranks || len(report.PeakInFlight) != ranks {
		return fmt.Errorf("%w: the table has %d ranks, the timeline %d and the report %d: they are not of the same table",
			ErrChart, ranks, len(tl.Idle), len(report.PeakInFlight))
	}
	if c, n := report.Credits, len(t.Skips); len(c.SkipForward) != n || len(c.SkipBackward) != n {
		return fmt.Errorf("%w: the table has %d skips, the report credits of %d and %d: they are not of the same table",
			ErrChart, n, len(c.SkipForward), len(c.SkipBackward))
	}
	for _, v := range append([]float64{tl.Makespan, tl.BubbleFraction, tl.SteadyStateStep}, tl.Idle...) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: the timeline's makespan, bubble, period or idle time is %v: it must be finite", ErrChart, v)
		}
	}
	actions := 0
	for _, row := range t.Ranks {
		actions += len(row)
	}

	s := summary{out: buffered(w)}
	if t.Schedule != "" {
		s.value("schedule", t.Schedule)
	}
	s.value("placement", t.Placement.String())
	s.value("ranks", ranks)
	s.value("chunks", t.NumChunks)
	s.value("microbatches", t.Microbatches)
	s.value("actions", actions)
	s.skips(t, report)
	s.value("makespan", tl.Makespan)
	s.value("bubble_fraction", tl.BubbleFraction)
	if tl.SteadyStateStep > 0 {
		s.value("period", tl.SteadyStateStep)
	}
	s.value("idle", tl.Idle)
	s.value("utilisation", utilisation(tl))
	s.value("peak_in_flight", report.PeakInFlight)
	s.value("peak_to_input_gradient", PeakToInputGradient(t))
	if actions <= MaxListed {
		s.value("rendezvous_safe", scheduler.RendezvousSafe(t))
	}
	if full || actions <= MaxListed {
		s.table(t)
	}
	fmt.Fprint(s.out, "\n}\n")
	if s.err != nil {
		return s.err
	}
	return s.out.Flush()
}

// summary writes the keys of one object.
type summary struct {
	out  *bufio.Writer
	keys int
	err  error
}

func (s *summary) key(name string) {
	separator := ",\n"
	if s.keys == 0 {
		separator = "{\n"
	}
	s.keys++
	fmt.Fprintf(s.out, "%s  %q: ", separator, name)
}

func (s *summary) value(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		s.err = fmt.Errorf("summary: %s: %w", name, err)
		return
	}
	s.key(name)
	fmt.Fprintf(s.out, "%s", text)
}

// skips writes the skips and their credits, if there are any.
func (s *summary) skips(t *scheduler.Table, report *scheduler.Report) {
	if len(t.Skips) == 0 {
		return
	}
	c := report.Credits
	ends, credits := make([][2]int, len(t.Skips)), make([][2]int, len(t.Skips))
	for i, skip := range t.Skips {
		ends[i], credits[i] = [2]int{skip.From, skip.To}, [2]int{c.SkipForward[i], c.SkipBackward[i]}
	}
	s.value("skips", ends)
	s.value("skip_credits", credits)
}

// table writes cell by cell into the writer's buffer.
func (s *summary) table(t *scheduler.Table) {
	s.key("table")
	fmt.Fprint(s.out, "[")
	for r, row := range t.Ranks {
		if r > 0 {
			fmt.Fprint(s.out, ",")
		}
		fmt.Fprint(s.out, "\n    [")
		for i := 0; i < len(row); {
			cell := s.out.AvailableBuffer()
			if i > 0 {
				cell = append(cell, ',')
			}
			cell = append(cell, '"')
			group := row[i : i+scheduler.Width(row, i)]
			if len(group) > 1 {
				cell = append(cell, '(')
			}
			for k, a := range group {
				if k > 0 {
					cell = append(cell, ';')
				}
				cell = appendAction(cell, a)
			}
			if len(group) > 1 {
				cell = append(cell, ")OVERLAP_F_B"...)
			}
			i += len(group)
			cell = append(cell, '"')
			if _, err := s.out.Write(cell); err != nil {
				s.err = err
				return
			}
		}
		fmt.Fprint(s.out, "]")
	}
	fmt.Fprint(s.out, "\n  ]")
}

// utilisation returns each rank's busy share of the makespan.
func utilisation(tl *scheduler.Timeline) []float64 {
	shares := make([]float64, len(tl.Busy))
	for r, busy := range tl.Busy {
		if tl.Makespan > 0 {
			shares[r] = busy / tl.Makespan
		}
	}
	return shares
}
