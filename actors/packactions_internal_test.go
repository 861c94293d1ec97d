package actors

import (
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// FuzzActionTimes: whatever comes as times of actions is refused or goes out again as it came, and makes no
// more than was allowed.
func FuzzActionTimes(f *testing.F) {
	at := time.Unix(1764000000, 5)
	same := func(t time.Time) time.Time { return t }
	for _, times := range [][]event.ActionTime{nil, {
		{Action: scheduler.Action{Chunk: 1, Type: scheduler.F, Microbatch: 300, Overlap: true}, Start: at, End: at.Add(time.Second)},
		{Action: scheduler.Action{Chunk: 70000, Type: scheduler.B}, Start: at.Add(-time.Hour), End: at},
	}, {
		{Action: scheduler.Action{Type: scheduler.F}, Start: at, End: at.Add(time.Second), Parts: partsOf(at.Add(9))},
		{Action: scheduler.Action{Type: scheduler.W}, Start: at, End: at},
	}} {
		text, err := proto.Marshal(PackActions(times, same))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	const most = 100
	f.Fuzz(func(t *testing.T, text []byte) {
		var w wire.ActionTimes
		if proto.Unmarshal(text, &w) != nil {
			return
		}
		times, err := UnpackActions(&w, most)
		if err != nil {
			return
		}
		if n := event.Size(times); n > most {
			t.Fatalf("%d actions and parts", n)
		}
		again, err := UnpackActions(PackActions(times, same), most)
		if err != nil || len(again) != len(times) {
			t.Fatalf("%v becomes %v, %v", times, again, err)
		}
		for i := range times {
			if times[i].Action != again[i].Action || !times[i].Start.Equal(again[i].Start) || !times[i].End.Equal(again[i].End) ||
				len(times[i].Parts) != len(again[i].Parts) {
				t.Fatalf("%+v becomes %+v", times[i], again[i])
			}
		}
	})
}

// TestPackActionsApart: starts are as far apart as they were measured, even if a clock is read a little too late in between.
func TestPackActionsApart(t *testing.T) {
	at, late := time.Now(), time.Duration(0)
	wall := func(t time.Time) time.Time {
		late += time.Microsecond
		return t.Add(-late)
	}
	var times []event.ActionTime
	for i := range 5 {
		start := at.Add(time.Duration(3-i) * time.Millisecond)
		times = append(times, event.ActionTime{Action: scheduler.Action{Type: scheduler.F}, Start: start, End: start.Add(time.Millisecond)})
	}
	got, err := UnpackActions(PackActions(times, wall), len(times))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if apart, want := got[i].Start.Sub(got[0].Start), times[i].Start.Sub(times[0].Start); apart != want {
			t.Errorf("action %d starts %v after the first; it was measured as %v", i, apart, want)
		}
	}
}

// TestUnpackActionsOverflow: a start that no clock can show is refused.
func TestUnpackActionsOverflow(t *testing.T) {
	at := time.Unix(1764000000, 5)
	for name, since := range map[string]int64{"later": math.MaxInt64, "earlier": math.MinInt64} {
		one := event.ActionTime{Action: scheduler.Action{Type: scheduler.F}, Start: at, End: at}
		w := PackActions([]event.ActionTime{one, one}, func(t time.Time) time.Time { return t })
		if since < 0 {
			w.StartsNs[0] = -5
		}
		w.StartsNs[1] = since
		if _, err := UnpackActions(w, 2); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
