package attempt

import (
	"context"
	"time"

	"github.com/troupe-ml/troupe/actors"
)

// Renew continues the run with other workers in the place of those that failed, after an attempt whose outcome has a Carry. The other
// workers have kept their stages, and the folder, the data and the files stay open. It waits up to wait for workers. ready is called once,
// when every stage has its weights. After an error only Close is possible.
func (a *Attempt) Renew(ctx context.Context, c *actors.Carry, wait time.Duration, placed, ready func()) (*actors.Run, error) {
	if err := a.devices.renew(ctx, wait); err != nil {
		return nil, err
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
	s.Carry, s.Weights, s.Ready = c, nil, ready
	s.Requests, s.Changes = a.env.Renewed(target.Step), a.output.Changes()
	run, err := actors.Start(*s)
	if err != nil {
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
