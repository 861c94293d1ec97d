package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// follower gets a run's events as they come.
type follower struct {
	events chan *wire.RunEvent // closed when the run has ended, or the follower was too slow
	slow   bool                // set before events is closed
	number uint64              // among this run's followers, from 1
	until  time.Time           // when its request for traces ends; the run's mu
	traces atomic.Int32        // traces among the events that wait for it
}

// publish numbers an event, keeps it and sends it to the followers. mu is held.
func (r *run) publish(e *wire.RunEvent) {
	r.publishTo(e, func(*follower) *wire.RunEvent { return e })
}

// publishTo is publish, but each follower gets the event that of returns for it. mu is held.
func (r *run) publishTo(e *wire.RunEvent, of func(*follower) *wire.RunEvent) {
	r.number++
	e.Number = r.number
	if r.events = append(r.events, e); len(r.events) > limitEvents {
		r.events = slices.Delete(r.events, 0, len(r.events)-limitEvents)
	}
	for f := range r.followers {
		select {
		case f.events <- of(f):
		default:
			f.slow = true
			r.drop(f)
		}
	}
}

// drop disconnects a follower. mu is held.
func (r *run) drop(f *follower) {
	delete(r.followers, f)
	close(f.events)
}

// follow returns the past events after a number, and a follower for those to come. The run's
// description comes first, even if it is no longer kept among the events, unless the follower has it.
func (r *run) follow(after uint64) (past []*wire.RunEvent, f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.info != nil && r.info.Number > after {
		past = append(past, r.info)
	}
	if len(r.events) > 0 && after > 0 && r.events[0].Number > after+1 {
		past = append(past, apiwire.Warning(fmt.Sprintf("%d earlier events are missing: the coordinator no longer keeps them",
			r.events[0].Number-after-1)))
	}
	for _, e := range r.events {
		over := e.GetWaiting() != nil && e.Number < r.info.GetNumber() // it has begun since
		if e.Number > after && e != r.info && !over {
			past = append(past, e)
		}
	}
	r.followed++
	f = &follower{events: make(chan *wire.RunEvent, limitFollowerEvents), number: r.followed}
	if r.followers[f] = struct{}{}; r.over() {
		r.drop(f)
	}
	return past, f
}

// leave removes a follower that has finished.
func (r *run) leave(f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
}

// record makes the run record its actions for a follower. Workers send them to the coordinator with their beats, and the
// coordinator sends them to the followers that requested them.
func (r *run) record(follower uint64, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: record for %v; want a time above 0", ErrRequest, d)
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

// publishStep is publish, with the step's trace for the followers that requested it. mu is held.
func (r *run) publishStep(e *wire.RunEvent, s troupe.StepEvent) {
	var traced *wire.RunEvent
	packed := false
	r.publishTo(e, func(f *follower) *wire.RunEvent {
		if s.Trace == nil || time.Now().After(f.until) || f.traces.Load() >= limitFollowerTraces {
			return e
		}
		if !packed {
			packed = true
			if t := apiwire.PackTrace(s); t != nil {
				with := apiwire.PackStep(s)
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

// actions returns the recorded actions of the current step.
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
		most := apiwire.LimitTraceActions / len(a.Ranks) // the latest ones, if a reply has no room for all
		reply.Ranks = append(reply.Ranks, actors.PackActions(event.Latest(times, most), clock.At))
	}
	return reply
}

// follow sends a run's events until it has ended.
func (a *answerer) follow(m *wire.FollowRequest) error {
	r, err := a.c.runs.find(m.GetRun())
	if err != nil {
		return err
	}
	after := m.GetAfter()
	if !bytes.Equal(m.GetEpoch(), a.c.id[:]) {
		after = 0 // the number is another coordinator's
	}
	defer a.alive()()
	past, f := r.follow(after)
	defer r.leave(f)
	if err := a.write(&wire.ApiReply{Kind: &wire.ApiReply_Following{Following: &wire.Following{Epoch: a.c.id[:], Run: r.summary(),
		LogEvery: apiwire.Small(r.cfg.Run.LogEvery), Follower: f.number}}}); err != nil {
		return err
	}
	a.c.log.Info("client follows a run", "run", r.id, "by", a.peer.Name)
	for _, e := range past {
		if err := a.event(e); err != nil {
			return err
		}
		if e.GetEnd() != nil {
			return nil
		}
	}
	for {
		select {
		case e, more := <-f.events:
			switch {
			case !more && f.slow:
				return ErrSlow
			case !more:
				return ErrClosing
			}
			err := a.event(e)
			if e.GetStep().GetTrace() != nil {
				f.traces.Add(-1)
			}
			if err != nil || e.GetEnd() != nil {
				return err
			}
		case <-a.ctx.Done():
			return nil
		}
	}
}

func (a *answerer) event(e *wire.RunEvent) error {
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Event{Event: e}})
}
