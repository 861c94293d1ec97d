package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Timed returns the step that ranks have recorded. Each rank is a row of its table, and times count from the start of
// the first action. nil: no action was recorded. The caller sets the step's number and its other fields.
func Timed(schedule string, trace [][]ActionTime, clocks []Clock) *scheduler.Step {
	var begin time.Time
	for _, row := range trace {
		if len(row) > 0 && (begin.IsZero() || row[0].Start.Before(begin)) {
			begin = row[0].Start
		}
	}
	if begin.IsZero() {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	ranks, s := make([][]scheduler.Action, len(trace)), &scheduler.Step{MS: make([][][2]float64, len(trace))}
	for r, row := range trace {
		for _, a := range row {
			ranks[r] = append(ranks[r], a.Action)
			s.MS[r] = append(s.MS[r], [2]float64{ms(a.Start.Sub(begin)), ms(a.End.Sub(begin))})
		}
	}
	for _, c := range clocks {
		s.Clocks = append(s.Clocks, scheduler.Clock{Host: c.Process, OffsetMS: ms(c.Ahead), UncertaintyMS: ms(c.Within)})
	}
	s.Table = scheduler.TableOf(schedule, ranks)
	return s
}
