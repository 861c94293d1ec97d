package draw

import (
	"fmt"

	"github.com/troupe-ml/troupe/scheduler"
)

// FromStep returns two charts of a measured step: its plan, which simulates the table with the step's mean times, and
// the measured times with the causes of waits and the hosts of ranks. The step must pass its Check.
func FromStep(s *scheduler.Step) (planned, measured Chart, err error) {
	plan, err := s.Plan()
	if err != nil {
		return planned, measured, err
	}
	planned, measured = FromTimeline(s.Table, plan), FromTimeline(s.Table, s.Timeline())
	planned.Title = fmt.Sprintf("planned: step %d, mean times", s.Number)
	measured.Title = fmt.Sprintf("measured: step %d", s.Number)
	planned.Unit, measured.Unit = Milliseconds, Milliseconds
	planned.Credits, measured.Credits = s.Credits, s.Credits
	measured.Step = s
	// If clocks make the times inconsistent, the chart has no causes.
	if gaps, err := s.Idle(); err == nil {
		for r, row := range gaps {
			for _, g := range row {
				measured.Lanes[r].Gaps = append(measured.Lanes[r].Gaps, Gap{Start: g.Start, End: g.End, Cause: cause(g)})
			}
		}
	}
	told := make(map[string]bool)
	for r, c := range s.Clocks {
		if c.Host == "" {
			continue
		}
		measured.Lanes[r].Name += " on " + c.Host
		measured.Lanes[r].Host = c.Host
		if !told[c.Host] { // several ranks may share a process
			told[c.Host] = true
			measured.Facts = append(measured.Facts, Fact{Label: "clock of " + c.Host, Value: clockFact(c)})
		}
	}
	return planned, measured, nil
}

// cause describes why a rank was idle.
func cause(g scheduler.Gap) string {
	if g.From < 0 || g.Cause == scheduler.Between {
		return g.Cause.String()
	}
	return fmt.Sprintf("%v: %v of rank %d", g.Cause, g.Needs, g.From)
}

// clockFact describes the clock correction of a worker.
func clockFact(c scheduler.Clock) string {
	switch {
	case c.UncertaintyMS == 0:
		return "offset not known yet, so its times are not corrected"
	case c.OffsetMS < 0:
		return fmt.Sprintf("%.3f ± %.3f ms behind the coordinator's; its times are corrected", -c.OffsetMS, c.UncertaintyMS)
	}
	return fmt.Sprintf("%.3f ± %.3f ms ahead of the coordinator's; its times are corrected", c.OffsetMS, c.UncertaintyMS)
}
