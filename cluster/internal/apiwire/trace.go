package apiwire

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// PackTrace makes a step's trace ready to leave; nil: it has none, or one that is too large.
func PackTrace(e troupe.StepEvent) *wire.Trace {
	n := 0
	for _, times := range e.Trace {
		n += len(times)
	}
	if n == 0 || n > LimitTraceActions || len(e.Trace) > LimitTraceRanks {
		return nil
	}
	t := &wire.Trace{}
	for _, times := range e.Trace {
		t.Ranks = append(t.Ranks, actors.PackActions(times, clock.At))
	}
	for _, c := range e.Clocks {
		t.Clocks = append(t.Clocks, &wire.RankClock{Process: c.Process, AheadNs: int64(c.Ahead), WithinNs: int64(c.Within)})
	}
	return t
}

// UnpackRanks takes the times of the actions of all ranks.
func UnpackRanks(w []*wire.ActionTimes) ([][]event.ActionTime, error) {
	if len(w) > LimitTraceRanks {
		return nil, fmt.Errorf("the times of %d ranks, of at most %d", len(w), LimitTraceRanks)
	}
	all, left := make([][]event.ActionTime, len(w)), LimitTraceActions
	for r, one := range w {
		times, err := actors.UnpackActions(one, left)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		all[r], left = times, left-len(times)
	}
	return all, nil
}

// unpackTrace adds a trace to the event that it came with.
func unpackTrace(e *troupe.StepEvent, w *wire.Trace) (err error) {
	if w == nil {
		return nil
	}
	if len(w.GetClocks()) > LimitTraceRanks {
		return fmt.Errorf("a trace with %d clocks, of at most %d", len(w.GetClocks()), LimitTraceRanks)
	}
	if e.Trace, err = UnpackRanks(w.GetRanks()); err != nil {
		return fmt.Errorf("a trace: %w", err)
	}
	for _, c := range w.GetClocks() {
		e.Clocks = append(e.Clocks, event.Clock{Process: c.GetProcess(), Ahead: time.Duration(c.GetAheadNs()),
			Within: time.Duration(c.GetWithinNs())})
	}
	return nil
}
