package attempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Renew continues the run with other workers in the place of those that failed, after an attempt whose outcome has a Carry. The other
// workers have kept their stages, and the folder, the data and the files stay open. It waits up to wait for workers. If there is no room
// for the ranks of lost, the worker, the attempt writes a checkpoint and ends; otherwise ready is its actors.Spec.Ready. After an error
// only Close is possible.
func (a *Attempt) Renew(ctx context.Context, c *actors.Carry, lost string, wait time.Duration, placed func(),
	ready func(read []int64) event.Event) (run *actors.Run, err error) {
	rescue, err := a.devices.renew(ctx, wait)
	if err != nil {
		return nil, err
	}
	if rescue && (!c.Settled(&a.spec) || a.spec.WriteCheckpoint == nil) {
		return nil, fmt.Errorf("%w, and no checkpoint can be written after step %d, because its validation is due", plan.ErrNoRoom,
			c.State().Step)
	}
	was := a.spec.Rescue
	a.spec.Rescue, a.spec.Frozen, a.assignment.Rescue = nil, nil, rescue
	if rescue {
		a.spec.Rescue, ready = &event.RegroupEvent{Lost: []string{lost}}, nil // its end is the event
		if was != nil {                                                       // this one tries again
			a.spec.Rescue.Lost = append(slices.Clone(was.Lost), lost)
		}
		if a.spec.Frozen, err = a.plan.Frozen(a.load); err != nil {
			return nil, err
		}
	}
	placed()
	target := c.Target()
	a.assignment.Adopt, a.assignment.Step = &target, target.Step
	if err := a.devices.place(ctx, &a.spec, a.assignment); err != nil {
		return nil, err
	}
	s := &a.spec
	if a.plan.Model().Fused() {
		s.Shares = nil
	}
	if s.Carry, s.Ready = c, nil; ready != nil {
		loaded := a.devices.loaded
		s.Ready = func(read []int64) event.Event {
			if loaded != nil {
				loaded()
			}
			return ready(read)
		}
	}
	if !a.plan.Freezes() {
		s.Weights = nil
	}
	s.Requests, s.Changes = a.env.Renewed(target.Step), a.output.Changes()
	if run, err = actors.Start(*s); err != nil {
		return nil, err
	}
	a.devices.watch(run)
	return run, nil
}

// Flush writes the line of the last decided step of an attempt that is not renewed, if that line is missing.
func (a *Attempt) Flush(c *actors.Carry) error {
	e := c.Record()
	if e == nil || a.metrics == nil {
		return nil
	}
	if err := a.metrics.Write(e.Record); err != nil {
		return err
	}
	a.env.Event(*e)
	return nil
}

// Replaced returns the ranks that a renewed attempt has replaced: those that were lost, also since the attempt before has ended.
func (a *Attempt) Replaced() []int { return a.devices.replaced }

// Source says where the ranks that a renewed attempt has replaced get their state.
func (a *Attempt) Source() string { return a.plan.Source() }
