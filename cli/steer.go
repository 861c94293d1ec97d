package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// The first times between two looks at a run that a command waits for, and the longest one.
const (
	lookLocal   = 50 * time.Millisecond
	lookCluster = 200 * time.Millisecond
	lookLongest = time.Second
)

// steered is a run that commands see and steer: a localRun or a clusterRun.
type steered interface {
	status(ctx context.Context) (seen, error)
	change(ctx context.Context, ch troupe.Change) (seen, error)
	kill(ctx context.Context) (seen, error)
	// ended waits until the run has ended. The error of a run that failed is its own; killed: that is no failure.
	ended(ctx context.Context, killed bool) (seen, error)
	close()
}

// open finds a run on this machine or in a cluster. The caller closes it.
func (o *clientFlags) open(ctx context.Context, cmd *cobra.Command, arg string) (steered, error) {
	dir, err := o.locate(ctx, cmd, arg)
	if err != nil {
		return nil, err
	}
	if dir != "" {
		return &localRun{dir: dir}, nil
	}
	c, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &clusterRun{client: c, run: arg}, nil
}

// clusterRun is a run of a cluster.
type clusterRun struct {
	client *cluster.Client
	run    string // its id, once that is known
}

func (r *clusterRun) close() { r.client.Close() }

func (r *clusterRun) status(ctx context.Context) (seen, error) {
	s, actors, err := r.client.Status(ctx, r.run)
	if err == nil {
		r.run = s.ID
	}
	return seenIn(s, actors), err
}

// seenIn describes a cluster's run.
func seenIn(s cluster.RunSummary, actors event.Status) seen {
	one := seen{RunSummary: s, actors: actors}
	if !s.Over() {
		one.phase = actors.Activity()
	}
	return one
}

func (r *clusterRun) change(ctx context.Context, ch troupe.Change) (seen, error) {
	var s cluster.RunSummary
	var err error
	if ch.Kind == event.ChangeStop && ch.Step == 0 {
		s, err = r.client.Control(ctx, r.run, cluster.Stop)
	} else {
		s, err = r.client.Change(ctx, r.run, ch)
	}
	return r.answer(ctx, s, err)
}

func (r *clusterRun) kill(ctx context.Context) (seen, error) {
	s, err := r.client.Control(ctx, r.run, cluster.Kill)
	return r.answer(ctx, s, err)
}

// answer completes the coordinator's answer to a request: if the run has ended, the error says how.
func (r *clusterRun) answer(ctx context.Context, s cluster.RunSummary, err error) (seen, error) {
	if err == nil {
		r.run = s.ID
		return seen{RunSummary: s}, nil
	}
	if errors.Is(err, cluster.ErrRequest) {
		if now, lookErr := r.status(ctx); lookErr == nil && now.Over() {
			return now, now.deaf()
		}
	}
	return seen{RunSummary: s}, err
}

func (r *clusterRun) ended(ctx context.Context, killed bool) (seen, error) {
	f, err := r.client.Follow(ctx, r.run, cluster.FollowOptions{})
	if err != nil {
		return seen{}, err
	}
	for range f.Events() { // wait for the end
	}
	if _, err := f.Wait(); err != nil && (!killed || !errors.Is(err, actors.ErrKilled)) {
		return seen{}, err
	}
	return r.status(ctx)
}

// lookUntil looks at a run until it is as wanted, or has ended.
func lookUntil(ctx context.Context, r steered, wanted func(seen) bool) (seen, error) {
	every := lookLocal
	if _, far := r.(*clusterRun); far {
		every = lookCluster
	}
	for ; ; every = min(lookLongest, every*5/4) {
		s, err := r.status(ctx)
		if err != nil || s.Over() || wanted(s) {
			return s, err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// requested reports whether a run has an open request of a kind that takes effect as soon as possible.
func (s seen) requested(kind event.ChangeKind) bool {
	return slices.ContainsFunc(s.actors.Requests, func(c event.Change) bool { return c.Kind == kind && c.Step == 0 })
}

// scheduled reports whether a run has an open request of a kind.
func (s seen) scheduled(kind event.ChangeKind) bool {
	return slices.ContainsFunc(s.actors.Requests, func(c event.Change) bool { return c.Kind == kind })
}

// errOverFirst means that a run ended before it did what was requested.
var errOverFirst = errors.New("the run ended first")
