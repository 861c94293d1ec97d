package cluster

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/wire"
)

// TestSavedStep: a worker that leaves names the checkpoint of the run that it has computed. Releases of other attempts and runs, which may
// come late, change nothing.
func TestSavedStep(t *testing.T) {
	run, other, attempt, next := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	w := &membership{worker: &worker{log: deaf(t).log}, parts: make(map[uuid.UUID]*part), saved: map[uuid.UUID]*int64{run: new(int64)}}
	for _, id := range []uuid.UUID{attempt, next} { // one ends, the other has begun
		p := &part{w: w, id: id, run: run, dropped: make(chan struct{})}
		close(p.dropped)
		w.parts[id] = p
	}
	w.awaitSaved()
	if got := w.savedOf(); len(got) > 0 {
		t.Errorf("it names checkpoints %v before there is one", got)
	}
	release := func(attempt, run uuid.UUID, step *int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.released(&wire.Release{Attempt: attempt[:], Run: run[:], SavedStep: step})
	}
	saved, late := int64(10), int64(7)
	release(next, run, &saved)
	release(attempt, run, nil)
	release(uuid.New(), other, &late)
	release(uuid.New(), other, nil)
	w.running.Wait()
	if got := w.savedOf(); !slices.Equal(got, []savedRun{{run, 10}}) || len(w.saved) != 1 {
		t.Errorf("it names the checkpoints %v of %d runs, want step 10 of %v", got, len(w.saved), run)
	}
}
