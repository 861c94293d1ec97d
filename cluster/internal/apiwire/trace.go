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

// PackTrace encodes a step's trace; nil: the step has none, or it is too large.
func PackTrace(e troupe.StepEvent) *wire.Trace {
	n := 0
	for _, times := range e.Trace {
		n += event.Size(times)
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

// UnpackRanks decodes the times of all ranks' actions.
func UnpackRanks(w []*wire.ActionTimes) ([][]event.ActionTime, error) {
	if len(w) > LimitTraceRanks {
		return nil, fmt.Errorf("the trace has %d ranks; the limit is %d", len(w), LimitTraceRanks)
	}
	all, left := make([][]event.ActionTime, len(w)), LimitTraceActions
	for r, one := range w {
		times, err := actors.UnpackActions(one, left)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		all[r], left = times, left-event.Size(times)
	}
	return all, nil
}

// unpackTrace decodes the trace of a step's event into the event.
func unpackTrace(e *troupe.StepEvent, w *wire.Trace) (err error) {
	if w == nil {
		return nil
	}
	if len(w.GetClocks()) > LimitTraceRanks {
		return fmt.Errorf("the trace has %d clocks; the limit is %d", len(w.GetClocks()), LimitTraceRanks)
	}
	if e.Trace, err = UnpackRanks(w.GetRanks()); err != nil {
		return fmt.Errorf("decode the trace: %w", err)
	}
	for _, c := range w.GetClocks() {
		e.Clocks = append(e.Clocks, event.Clock{Process: c.GetProcess(), Ahead: time.Duration(c.GetAheadNs()),
			Within: time.Duration(c.GetWithinNs())})
	}
	return nil
}
