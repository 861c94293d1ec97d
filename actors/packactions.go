package actors

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// overlapBit marks the type of an action that overlaps with the next one.
const overlapBit = 128

// PackActions encodes the times of actions for another process. wall returns what this process's
// clock shows at a time.
func PackActions(times []event.ActionTime, wall func(time.Time) time.Time) *wire.ActionTimes {
	w := &wire.ActionTimes{Chunks: make([]int32, 0, len(times)), Types: make([]byte, 0, len(times)),
		Microbatches: make([]int32, 0, len(times)),
		StartsNs:     make([]int64, 0, len(times)), TookNs: make([]int64, 0, len(times))}
	var before int64
	for _, t := range times {
		start := wall(t.Start).UnixNano()
		kind := byte(t.Action.Type)
		if t.Action.Overlap {
			kind |= overlapBit
		}
		w.Chunks, w.Types, w.Microbatches = append(w.Chunks, t.Action.Chunk), append(w.Types, kind), append(w.Microbatches, t.Action.Microbatch)
		w.StartsNs, w.TookNs = append(w.StartsNs, start-before), append(w.TookNs, int64(t.End.Sub(t.Start)))
		before = start
	}
	return w
}

// UnpackActions decodes the times of up to most actions from another process. Their chunks and
// microbatches are only displayed, so it does not check them against a table.
func UnpackActions(w *wire.ActionTimes, most int) ([]event.ActionTime, error) {
	n := len(w.GetChunks())
	if n > most {
		return nil, fmt.Errorf("%w: the times of %d actions; the limit is %d", ErrMessage, n, most)
	}
	if len(w.GetTypes()) != n || len(w.GetMicrobatches()) != n || len(w.GetStartsNs()) != n || len(w.GetTookNs()) != n {
		return nil, fmt.Errorf("%w: the numbers of chunks (%d), types (%d), microbatches (%d), starts (%d) and ends (%d) of actions differ",
			ErrMessage, n, len(w.GetTypes()),
			len(w.GetMicrobatches()), len(w.GetStartsNs()), len(w.GetTookNs()))
	}
	if n == 0 {
		return nil, nil
	}
	times := make([]event.ActionTime, n)
	var at int64
	for i := range times {
		kind := scheduler.Type(w.GetTypes()[i] &^ overlapBit)
		a := scheduler.Action{Chunk: w.GetChunks()[i], Type: kind, Microbatch: w.GetMicrobatches()[i], Overlap: w.GetTypes()[i]&overlapBit != 0}
		if kind < scheduler.F || kind > scheduler.B || a.Chunk < 0 || a.Microbatch < 0 {
			return nil, fmt.Errorf("%w: an impossible action: type %d, microbatch %d, chunk %d", ErrMessage, kind, a.Microbatch, a.Chunk)
		}
		at += w.GetStartsNs()[i]
		start := time.Unix(0, at)
		times[i] = event.ActionTime{Action: a, Start: start, End: start.Add(time.Duration(w.GetTookNs()[i]))}
	}
	return times, nil
}
