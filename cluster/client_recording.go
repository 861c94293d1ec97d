package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/wire"
)

// recording is a follower's request to record actions.
type recording struct {
	mu     sync.Mutex
	number uint64    // the follower's, from the coordinator
	until  time.Time // when recording ends
}

// begins stores the follower's number, and returns how long the request still lasts.
func (r *recording) begins(number uint64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = number
	return time.Until(r.until)
}

// extend prolongs the request.
func (r *recording) extend(d time.Duration) (number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); until.After(r.until) {
		r.until = until
	}
	return r.number
}

// Subscribe passes the run's events from now on to one more reader, like (*troupe.Run).Subscribe. The
// channel of Events must still be read.
func (f *Followed) Subscribe() *troupe.Subscription {
	return f.feed.Subscribe()
}

// Record records the run's actions for a time, like (*troupe.Run).Record. The request runs in the background; Notice gets
// its error.
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
	_, err := f.c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Record{Record: &wire.RecordRequest{Run: f.ID, Follower: number,
		ForNs: int64(d)}}})
	if err != nil && f.ctx.Err() == nil {
		f.notice(fmt.Sprintf("can't record the run's actions: %v", err))
	}
}

// Actions returns the recorded actions of the current step, like (*troupe.Run).Actions, on the coordinator's clock. It is
// empty if the coordinator can't be reached.
func (f *Followed) Actions() troupe.Actions {
	ctx, cancel := context.WithTimeout(f.ctx, requestTime)
	defer cancel()
	a, err := f.c.Actions(ctx, f.ID)
	if err != nil && f.ctx.Err() == nil {
		f.notice(fmt.Sprintf("can't get the run's actions: %v", err))
	}
	return a
}
