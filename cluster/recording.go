package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// What is recorded of a run goes from its workers to the coordinator with their beats, and from there to those who
// have asked for it, who name themselves by the number of their following.

// packTrace makes a step's trace ready to leave; nil: it has none, or one that is too large.
func packTrace(e troupe.StepEvent) *wire.Trace {
	n := 0
	for _, times := range e.Trace {
		n += len(times)
	}
	if n == 0 || n > limitTraceActions || len(e.Trace) > limitTraceRanks {
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

// unpackRanks takes the times of the actions of all ranks.
func unpackRanks(w []*wire.ActionTimes) ([][]event.ActionTime, error) {
	if len(w) > limitTraceRanks {
		return nil, fmt.Errorf("the times of %d ranks, of at most %d", len(w), limitTraceRanks)
	}
	all, left := make([][]event.ActionTime, len(w)), limitTraceActions
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
	if len(w.GetClocks()) > limitTraceRanks {
		return fmt.Errorf("a trace with %d clocks, of at most %d", len(w.GetClocks()), limitTraceRanks)
	}
	if e.Trace, err = unpackRanks(w.GetRanks()); err != nil {
		return fmt.Errorf("a trace: %w", err)
	}
	for _, c := range w.GetClocks() {
		e.Clocks = append(e.Clocks, event.Clock{Process: c.GetProcess(), Ahead: time.Duration(c.GetAheadNs()), Within: time.Duration(c.GetWithinNs())})
	}
	return nil
}

// record has the run time its actions, for a follower of it.
func (r *run) record(follower uint64, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: recording for %v", ErrRequest, d)
	}
	d = min(d, limitRecordTime)
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.followers {
		if f.number == follower {
			f.until = time.Now().Add(d)
		}
	}
	if r.inner != nil && !r.over() {
		r.inner.Record(d)
	}
	return nil
}

// publishStep is publish, with the trace of a step for those who have asked for it. mu is held.
func (r *run) publishStep(e *wire.RunEvent, s troupe.StepEvent) {
	var traced *wire.RunEvent
	packed := false
	r.publishTo(e, func(f *follower) *wire.RunEvent {
		if s.Trace == nil || time.Now().After(f.until) || f.traces.Load() >= limitFollowerTraces {
			return e
		}
		if !packed {
			packed = true
			if t := packTrace(s); t != nil {
				with := packStep(s)
				with.Trace = t
				traced = &wire.RunEvent{Number: e.Number, Kind: &wire.RunEvent_Step{Step: with}}
				if proto.Size(traced) > limitReplyBytes/2 {
					traced = nil
				}
			}
		}
		if traced == nil {
			return e
		}
		f.traces.Add(1)
		return traced
	})
}

// actions is what was recorded of the step under way.
func (r *run) actions() *wire.ActionsReply {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	reply := &wire.ActionsReply{}
	if inner == nil {
		return reply
	}
	a := inner.Actions()
	reply.Step, reply.Phase, reply.Recorded = a.Step, uint32(a.Phase), a.Ranks != nil
	if !a.Began.IsZero() {
		reply.BeganNs = clock.At(a.Began).UnixNano()
	}
	for _, times := range a.Ranks {
		most := limitTraceActions / len(a.Ranks) // the latest of so many that an answer has no room for all
		reply.Ranks = append(reply.Ranks, actors.PackActions(times[max(0, len(times)-most):], clock.At))
	}
	return reply
}

// observeRecorded takes the actions that a worker's stages have finished, and what memory they have taken. mu is held.
func (a *attempt) observeRecorded(s *share, offset time.Duration, reply *wire.StatusReply) error {
	mine := make(map[int32]bool, len(s.ranks))
	for _, rank := range s.ranks {
		mine[small(rank)] = true
	}
	left := limitBeatActions
	for _, w := range reply.GetActions() {
		if !mine[w.GetRank()] || w.GetFirst() < 0 || w.GetFirst() > limitTraceActions || w.GetPhase() > uint32(event.Eval) {
			return fmt.Errorf("actions of rank %d from the number %d on", w.GetRank(), w.GetFirst())
		}
		times, err := actors.UnpackActions(w.GetTimes(), left)
		if err != nil {
			return err
		}
		left -= len(times)
		for i, t := range times {
			times[i].Start, times[i].End = t.Start.Add(-offset), t.End.Add(-offset)
		}
		if a.actors != nil {
			a.actors.ObserveActions(actors.RankActions{Rank: int(w.GetRank()), Step: w.GetStep(), Order: w.GetOrder(), Phase: event.Phase(w.GetPhase()), First: int(w.GetFirst()), Times: times}) //nolint:gosec // looked at above
		}
	}
	for _, w := range reply.GetMemory() {
		if mine[w.GetRank()] {
			a.memory[int(w.GetRank())] = w.GetBytes()
		}
	}
	return nil
}

// rankMemory is the most tensor memory that each rank has taken at a time, as far as it was heard.
func (a *attempt) rankMemory(ranks int) []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]int64, ranks)
	for rank, n := range a.memory {
		if rank < ranks {
			all[rank] = n
		}
	}
	return all
}

// recorded adds to a worker's status what its stages have finished since the last one, and the memory that they
// have taken. w.mu is held.
func (p *part) recorded(r *wire.StatusReply) {
	wall := p.w.cfg.wall
	for _, a := range p.stages.ActionsSince(p.told, limitBeatActions) {
		r.Actions = append(r.Actions, &wire.RankActions{Rank: small(a.Rank), Step: a.Step, Order: a.Order, Phase: uint32(a.Phase), First: int64(a.First), Times: actors.PackActions(a.Times, wall)})
	}
	taken := p.set.TakenBy()
	for _, s := range p.stages.Status().Actors {
		if n, ok := taken[s.Actor]; ok {
			r.Memory = append(r.Memory, &wire.RankMemory{Rank: small(s.Rank), Bytes: n})
		}
	}
}

// recording is what a follower has asked to be recorded.
type recording struct {
	mu     sync.Mutex
	number uint64    // of the following, by the coordinator
	until  time.Time // that is to be recorded
}

// begins notes the number of a following, and returns for how long what was asked for still lasts.
func (r *recording) begins(number uint64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = number
	return time.Until(r.until)
}

// extend notes that something is asked for.
func (r *recording) extend(d time.Duration) (number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); until.After(r.until) {
		r.until = until
	}
	return r.number
}

// Subscribe gives the run's events from now on to one more reader, as (*troupe.Run).Subscribe. Events
// must be read all the same.
func (f *Followed) Subscribe() *troupe.Subscription {
	return troupe.NewSubscription(f.feed.Subscribe())
}

// Record is (*troupe.Run).Record. The coordinator is asked in the background; where it can't be, Notice is told.
func (f *Followed) Record(d time.Duration) {
	number := f.recording.extend(d)
	f.running.Add(1)
	go func() { // ends with the answer, or with its time
		defer f.running.Done()
		f.record(number, d)
	}()
}

func (f *Followed) record(number uint64, d time.Duration) {
	ctx, cancel := context.WithTimeout(f.ctx, requestTime)
	defer cancel()
	_, err := f.c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Record{Record: &wire.RecordRequest{Run: f.ID, Follower: number, ForNs: int64(d)}}})
	if err != nil && f.ctx.Err() == nil {
		f.notice(fmt.Sprintf("the run's actions are not recorded: %v", err))
	}
}

// Actions is (*troupe.Run).Actions, by the coordinator's clock; nothing where that can't be asked.
func (f *Followed) Actions() troupe.Actions {
	ctx, cancel := context.WithTimeout(f.ctx, requestTime)
	defer cancel()
	a, err := f.c.Actions(ctx, f.ID)
	if err != nil && f.ctx.Err() == nil {
		f.notice(fmt.Sprintf("the run's actions: %v", err))
	}
	return a
}

// Actions is what was recorded of the step that a run works on, by the coordinator's clock.
func (c *Client) Actions(ctx context.Context, run string) (troupe.Actions, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Actions{Actions: &wire.ActionsRequest{Run: run}}})
	if err != nil {
		return troupe.Actions{}, err
	}
	w := m.GetActions()
	a := troupe.Actions{Step: w.GetStep(), Phase: event.Phase(min(w.GetPhase(), uint32(event.Eval)))} //nolint:gosec // bounded
	if w.GetBeganNs() != 0 {
		a.Began = time.Unix(0, w.GetBeganNs())
	}
	if w.GetRecorded() {
		if a.Ranks, err = unpackRanks(w.GetRanks()); err != nil {
			return troupe.Actions{}, fmt.Errorf("the coordinator's answer: %w", err)
		}
	}
	return a, nil
}
