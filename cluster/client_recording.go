package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/wire"
)

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
	return f.feed.Subscribe()
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
	_, err := f.c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Record{Record: &wire.RecordRequest{Run: f.ID, Follower: number,
		ForNs: int64(d)}}})
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
