package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// TestMoveBy: the ranks of a worker that is told to stop move in its grace time, with time to load their state; those of a drained one when
// the step has ended. The first beat counts, also if the worker was drained before.
func TestMoveBy(t *testing.T) {
	log := deaf(t).log
	for _, c := range []struct{ grace, want time.Duration }{
		{25 * time.Second, 15 * time.Second}, {time.Minute, 50 * time.Second}, {5 * time.Second, 3 * time.Second}, {0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			drained, stopped := &workerState{leaving: true}, &workerState{leaving: true}
			id := uuid.New()
			co := &Coordinator{log: log, workers: map[uuid.UUID]*workerState{id: stopped}}
			if at := co.firstMove([]*workerState{drained, stopped}); !at.IsZero() {
				t.Errorf("before a worker is told to stop, ranks must move by %v", at)
			}
			want := time.Now().Add(c.want)
			co.leaving(id, c.grace)
			time.Sleep(leaveGrace / 2)
			co.leaving(id, c.grace)
			if at := co.firstMove([]*workerState{drained, stopped}); !at.Equal(want) {
				t.Errorf("with a grace time of %v, the ranks must move after %v, want %v", c.grace, time.Until(at)+leaveGrace/2, c.want)
			}
		})
	}
}
