package actors

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestActionsSince: a reply has at most so many actions and parts, and the next ones have the rest, in order and each once.
func TestActionsSince(t *testing.T) {
	parts := []int{0, 3, 0, 9, 2, 0, 0, 1}
	log := func(order int64, before *actionLog) *actionLog {
		l := newActionLog(Header{Step: order, Order: order}, event.Train, len(parts), before)
		for i, n := range parts {
			l.add(event.ActionTime{Action: scheduler.Action{Type: scheduler.F, Microbatch: int32(i)}, Start: time.Unix(int64(i), 0),
				Parts: make([]scheduler.PartTime, n)})
		}
		return l
	}
	const most, ranks = 11, 2
	s := &Stages{local: new(local)}
	for rank := range ranks {
		c := newStatusCell(stageName(rank), rank, new(atomic.Int64))
		c.actions.Store(log(2, log(1, nil)))
		s.cells = append(s.cells, c)
	}
	told, got := make(map[int]Told), make(map[[2]int64]int)
	for replies := 0; ; replies++ {
		all := s.ActionsSince(told, most)
		if len(all) == 0 {
			break
		}
		size := 0
		for _, r := range all {
			size += event.Size(r.Times)
			at := [2]int64{int64(r.Rank), r.Order}
			if r.First != got[at] || r.Step != r.Order {
				t.Fatalf("reply %d: actions from %d on, of rank %d in order %d, after %d", replies, r.First, r.Rank, r.Order, got[at])
			}
			if before := [2]int64{int64(r.Rank), r.Order - 1}; r.Order == 2 && got[before] != len(parts) {
				t.Fatalf("reply %d: order 2 after %d actions of the one before", replies, got[before])
			}
			got[at] += len(r.Times)
		}
		if size > most {
			t.Fatalf("reply %d: %d actions and parts", replies, size)
		}
	}
	for rank := range int64(ranks) {
		for order := int64(1); order <= 2; order++ {
			if n := got[[2]int64{rank, order}]; n != len(parts) {
				t.Errorf("rank %d, order %d: %d actions", rank, order, n)
			}
		}
	}
}
