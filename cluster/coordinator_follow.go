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
)

// follower is one who gets a run's events as they come.
type follower struct {
	events chan *wire.RunEvent // closed at the run's end, and when it was too slow
	slow   bool                // set before
	number uint64              // of this run's followers, from 1
	until  time.Time           // it wants traces; the run's mu
	traces atomic.Int32        // of the events that wait for it
}

// publish numbers an event, keeps it and gives it to who follows. mu is held.
func (r *run) publish(e *wire.RunEvent) {
	r.publishTo(e, func(*follower) *wire.RunEvent { return e })
}

// publishTo is publish, with what of returns for who follows. mu is held.
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

// drop ends a follower. mu is held.
func (r *run) drop(f *follower) {
	delete(r.followers, f)
	close(f.events)
}

// follow gives what has happened behind an event, and what is to come. The description of
// the run comes first, however long ago it was, unless the follower has it.
func (r *run) follow(after uint64) (past []*wire.RunEvent, f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.info != nil && r.info.Number > after {
		past = append(past, r.info)
	}
	if len(r.events) > 0 && after > 0 && r.events[0].Number > after+1 {
		past = append(past, apiwire.Warning(fmt.Sprintf("%d events are no longer kept", r.events[0].Number-after-1)))
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

// leave ends a follower that goes by itself.
func (r *run) leave(f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
}

// record has the run time its actions, for a follower of it. What is recorded goes from workers to the coordinator with
// their beats, and from there to those who have asked for it, by the numbers of their followings.
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
		most := apiwire.LimitTraceActions / len(a.Ranks) // the latest of so many that an answer has no room for all
		reply.Ranks = append(reply.Ranks, actors.PackActions(times[max(0, len(times)-most):], clock.At))
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
		after = 0 // it followed another coordinator
	}
	defer a.alive()()
	past, f := r.follow(after)
	defer r.leave(f)
	if err := a.write(&wire.ApiReply{Kind: &wire.ApiReply_Following{Following: &wire.Following{Epoch: a.c.id[:], Run: r.summary(),
		LogEvery: apiwire.Small(r.cfg.Run.LogEvery), Follower: f.number}}}); err != nil {
		return err
	}
	a.c.log.Info("a run is followed", "run", r.id, "by", a.peer.Name)
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
