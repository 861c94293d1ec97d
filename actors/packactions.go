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
// clock shows at a time. Because it may be off by a little more or less each time, only the first
// action's start comes from it. So all times are as far apart as they were measured.
func PackActions(times []event.ActionTime, wall func(time.Time) time.Time) *wire.ActionTimes {
	w := &wire.ActionTimes{Chunks: make([]int32, 0, len(times)), Types: make([]byte, 0, len(times)),
		Microbatches: make([]int32, 0, len(times)),
		StartsNs:     make([]int64, 0, len(times)), TookNs: make([]int64, 0, len(times))}
	if event.Size(times) > len(times) {
		w.Parts = make([]int32, 0, len(times))
	}
	for i, t := range times {
		var start int64 // since the start of the action before
		if i == 0 {
			start = wall(t.Start).UnixNano()
		} else {
			start = int64(t.Start.Sub(times[i-1].Start))
		}
		kind := byte(t.Action.Type)
		if t.Action.Overlap {
			kind |= overlapBit
		}
		w.Chunks, w.Types, w.Microbatches = append(w.Chunks, t.Action.Chunk), append(w.Types, kind), append(w.Microbatches, t.Action.Microbatch)
		w.StartsNs, w.TookNs = append(w.StartsNs, start), append(w.TookNs, int64(t.End.Sub(t.Start)))
		if w.Parts != nil {
			w.Parts = append(w.Parts, int32(len(t.Parts)))
			packParts(w, t)
		}
	}
	return w
}

// packParts encodes the times of an action's parts, each since the time before it.
func packParts(w *wire.ActionTimes, t event.ActionTime) {
	before := t.Start
	for _, p := range t.Parts {
		w.Exchanges = append(w.Exchanges, byte(p.Exchange))
		for _, at := range timesOf(&p) {
			w.PartNs = append(w.PartNs, int64(at.Sub(before)))
			before = *at
		}
	}
}

// timesOf are the times of a part, of which the last has no exchange.
func timesOf(p *scheduler.PartTime) []*time.Time {
	if p.Exchange == 0 {
		return []*time.Time{&p.Start, &p.End}
	}
	return []*time.Time{&p.Start, &p.End, &p.Sent, &p.Came}
}

// UnpackActions decodes the times of up to most actions and parts from another process. Their chunks
// and microbatches are only displayed, so it does not check them against a table.
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
	parts, err := newPackedParts(w, most-n)
	if err != nil {
		return nil, err
	}
	var at int64
	for i := range times {
		kind := scheduler.Type(w.GetTypes()[i] &^ overlapBit)
		a := scheduler.Action{Chunk: w.GetChunks()[i], Type: kind, Microbatch: w.GetMicrobatches()[i], Overlap: w.GetTypes()[i]&overlapBit != 0}
		if kind < scheduler.F || kind > scheduler.B || a.Chunk < 0 || a.Microbatch < 0 {
			return nil, fmt.Errorf("%w: an impossible action: type %d, microbatch %d, chunk %d", ErrMessage, kind, a.Microbatch, a.Chunk)
		}
		since, before := w.GetStartsNs()[i], at
		if at += since; (since < 0) != (at < before) {
			return nil, fmt.Errorf("%w: action %d starts %d ns after the one before, which no clock can show", ErrMessage, i, since)
		}
		start := time.Unix(0, at)
		times[i] = event.ActionTime{Action: a, Start: start, End: start.Add(time.Duration(w.GetTookNs()[i]))}
		if times[i].Parts, err = parts.of(i, start); err != nil {
			return nil, err
		}
	}
	if len(parts.exchanges) > 0 || len(parts.ns) > 0 {
		return nil, fmt.Errorf("%w: %d parts and %d times of parts belong to no action", ErrMessage, len(parts.exchanges), len(parts.ns))
	}
	return times, nil
}

// packedParts are the parts of actions that are not decoded yet.
type packedParts struct {
	counts    []int32 // by action; none: no action has parts
	exchanges []byte
	ns        []int64
}

func newPackedParts(w *wire.ActionTimes, most int) (*packedParts, error) {
	p := &packedParts{w.GetParts(), w.GetExchanges(), w.GetPartNs()}
	if n := len(p.counts); n > 0 && n != len(w.GetChunks()) {
		return nil, fmt.Errorf("%w: the parts of %d actions, but there are %d actions", ErrMessage, n, len(w.GetChunks()))
	}
	if n := len(p.exchanges); n > most {
		return nil, fmt.Errorf("%w: the times of %d parts of actions; the limit is %d", ErrMessage, n, most)
	}
	return p, nil
}

// of decodes the parts of the next action.
func (u *packedParts) of(i int, at time.Time) (parts []scheduler.PartTime, err error) {
	if len(u.counts) == 0 || u.counts[i] == 0 {
		return nil, nil
	}
	n := int(u.counts[i])
	if n < 0 || n > scheduler.MaxParts || n > len(u.exchanges) {
		return nil, fmt.Errorf("%w: an action with %d parts; the limit is %d, and %d are left", ErrMessage, n, scheduler.MaxParts,
			len(u.exchanges))
	}
	parts = make([]scheduler.PartTime, n)
	for k := range parts {
		p := &parts[k]
		p.Exchange = scheduler.Type(u.exchanges[k])
		if last := k == n-1; last != (p.Exchange == 0) || !last && !p.Exchange.IsExchange() {
			return nil, fmt.Errorf("%w: an exchange of type %d after part %d of %d", ErrMessage, p.Exchange, k+1, n)
		}
		all := timesOf(p)
		if len(all) > len(u.ns) {
			return nil, fmt.Errorf("%w: part %d of %d has no times", ErrMessage, k+1, n)
		}
		for j, t := range all {
			at = at.Add(time.Duration(u.ns[j]))
			*t = at
		}
		u.ns = u.ns[len(all):]
	}
	u.exchanges = u.exchanges[n:]
	return parts, nil
}
