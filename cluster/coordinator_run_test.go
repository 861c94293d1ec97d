package cluster

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry"
)

func newTestRun() *run {
	s := &runs{}
	r := s.newRun(new(config.Config), journal.Entry{ID: "00000001", Name: "r"})
	s.all = append(s.all, r)
	return r
}

func (r *run) steps(from, to int) {
	for i := from; i <= to; i++ {
		e := apiwire.PackEvent(troupe.StepEvent{Record: telemetry.Record{Step: i}})
		r.mu.Lock()
		r.publish(e)
		r.mu.Unlock()
	}
}

// TestFollowers: a follower gets the description, the last events and those to come. A slow one is disconnected, and the
// others continue.
func TestFollowers(t *testing.T) {
	r := newTestRun()
	r.mu.Lock()
	r.info = &wire.RunEvent{Kind: &wire.RunEvent_Info{Info: &wire.RunInfo{Name: "r"}}}
	r.publish(r.info)
	r.mu.Unlock()
	r.steps(1, limitEvents+9)
	past, f := r.follow(0)
	if len(past) != limitEvents+1 || past[0].GetInfo() == nil || past[1].GetStep().GetStep() != 10 {
		t.Fatalf("%d events, the first %v, %v", len(past), past[0], past[1])
	}
	if past, other := r.follow(past[len(past)-2].GetNumber()); len(past) != 1 || past[0].GetStep().GetStep() != limitEvents+9 {
		t.Errorf("behind the last but one: %v", past)
	} else {
		r.leave(other)
	}
	if past, other := r.follow(3); past[0].GetWarning() == nil {
		t.Errorf("events that are lost: %v", past[0])
	} else {
		r.leave(other)
	}
	_, slow := r.follow(0)
	for i := range limitFollowerEvents + 1 {
		r.steps(i, i)
		<-f.events
	}
	n := 0
	for range slow.events {
		n++
	}
	if n != limitFollowerEvents || !slow.slow {
		t.Errorf("the slow one got %d events, and is cut off: %v", n, slow.slow)
	}
	r.end(troupe.Result{Step: 5}, nil, false)
	if e := <-f.events; e.GetEnd().GetStep() != 5 {
		t.Errorf("the end is %v", e)
	}
	if _, more := <-f.events; more {
		t.Error("something comes behind the end")
	}
	past, f = r.follow(0)
	if _, more := <-f.events; more || past[len(past)-1].GetEnd() == nil || len(past) != limitEndedEvents+1 {
		t.Errorf("of a run that has ended come %d events, and more: %v", len(past), more)
	}
}

// TestFind: a run is found by its id, the start of its id, or its name.
func TestFind(t *testing.T) {
	s := &runs{}
	for _, e := range []struct{ id, name string }{{"00000001", "a"}, {"00000002", "a"}, {"10000000", "b"}, {"20000000", "a"}} {
		s.all = append(s.all, s.newRun(new(config.Config), journal.Entry{ID: e.id, Name: e.name}))
	}
	s.all[0].end(troupe.Result{}, nil, false)
	s.all[3].end(troupe.Result{}, nil, false)
	for text, want := range map[string]string{"00000001": "00000001", "1": "10000000", "b": "10000000", "a": "00000002", "2": "20000000",
		"0": "matches several runs: 00000001, 00000002", "c": "no such run", "": "no such run", strings.Repeat("x", 1000): "no such run"} {
		r, err := s.find(text)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && r.id != want {
			t.Errorf("%.20q: %v, %v, want %s", text, r, err, want)
		}
	}
	for range limitHistory + 5 {
		r := s.newRun(new(config.Config), journal.Entry{})
		r.end(troupe.Result{}, nil, false)
		s.all = append(s.all, r)
	}
	s.prune()
	if len(s.all) != limitHistory+2 { // two are in progress
		t.Errorf("%d runs are listed", len(s.all))
	}
}

// TestForwarder: records without room are counted, and the remaining ones are sent at the end.
func TestForwarder(t *testing.T) {
	f := newForwarder()
	for range limitLogQueue + 7 {
		f.add(&wire.LogRecord{Text: "x"})
	}
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.send(ctx, ours)
	}()
	records, dropped := 0, uint64(0)
	for {
		var b wire.LogBatch
		if err := wire.ReadFrame(theirs, &b, limitLogBatchBytes); err != nil {
			if err != io.EOF { //nolint:errorlint // as ReadFrame gives it
				t.Error(err)
			}
			break
		}
		records, dropped = records+len(b.GetRecords()), dropped+b.GetDropped()
	}
	<-done
	if records != limitLogQueue || dropped != 7 {
		t.Errorf("%d records came, %d were dropped", records, dropped)
	}
	_ = theirs.SetDeadline(time.Time{})
}
