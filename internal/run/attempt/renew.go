package attempt

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Renew continues the run with other workers in the place of those that failed, after an attempt whose outcome has a Carry. The other
// workers have kept their stages, and the folder, the data and the files stay open. It waits up to wait for workers. With rescue there was
// no room for the ranks of lost, the worker: the attempt writes a checkpoint and ends. ready is called once, when every stage has its
// weights, as actors.Spec.Ready. After an error only Close is possible.
func (a *Attempt) Renew(ctx context.Context, c *actors.Carry, lost string, wait time.Duration, placed func(), ready func(read []int64)) (
	run *actors.Run, rescue bool, err error) {
	if rescue, err = a.devices.renew(ctx, wait); err != nil {
		return nil, false, err
	}
	if rescue && (!c.Settled(&a.spec) || a.spec.WriteCheckpoint == nil) {
		return nil, false, fmt.Errorf("%w, and no checkpoint can be written after step %d, because its validation is due", plan.ErrNoRoom,
			c.State().Step)
	}
	a.spec.Rescue, a.assignment.Rescue = nil, rescue
	if rescue {
		a.spec.Rescue = &event.RegroupEvent{Lost: []string{lost}}
	}
	placed()
	target := c.Target()
	a.assignment.Adopt, a.assignment.Step = &target, target.Step
	if err := a.devices.place(ctx, &a.spec, a.assignment); err != nil {
		return nil, false, err
	}
	s := &a.spec
	if a.plan.Model().Fused() {
		s.Shares = nil
	}
	if s.Carry, s.Ready = c, ready; !a.plan.Freezes() {
		s.Weights = nil
	}
	s.Requests, s.Changes = a.env.Renewed(target.Step), a.output.Changes()
	if run, err = actors.Start(*s); err != nil {
		return nil, false, err
	}
	a.devices.watch(run)
	return run, rescue, nil
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

// Source says where the ranks that a renewed attempt has replaced get their state.
func (a *Attempt) Source() string { return a.plan.Source() }
