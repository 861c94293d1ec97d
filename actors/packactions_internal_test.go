package actors

import (
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
