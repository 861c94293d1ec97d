package attempt

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/plan"
)

// Restarts counts the restarts of a run since its last new checkpoint.
type Restarts struct {
	Most, Done int
	step       int64 // of that checkpoint
	// The next step at the last renewal, and the renewals since then that came before another step.
	next   int64
	barren int
}

// Renews reports whether an attempt that ended after a step may be renewed: not if Most renewals led to no step.
func (r *Restarts) Renews(step int64) bool {
	if step >= r.next {
		r.next, r.barren = step+1, 0
		return true
	}
	r.barren++
	return r.barren <= r.Most
}

// Allows reports whether an attempt that ended with err may be restarted from the
// checkpoint of a step.
func (r *Restarts) Allows(err error, step int64) bool {
	if !plan.IsLost(err) {
		return false
	}
	if step > r.step {
		r.step, r.Done = step, 0
	}
	r.Done++
	return r.Done <= r.Most
}

// Exhausted adds to err that no restart is left, if that is so.
func (r *Restarts) Exhausted(err error) error {
	if r.Done <= r.Most || r.Done == 0 {
		return err
	}
	return fmt.Errorf("%w (after %d restarts since the checkpoint of step %d: that is cluster.max_restarts)", err, r.Most, r.step)
}
