package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/prom"
)

// process serves the metrics and the health of a cluster's process, if there is a server.
func (e *exports) process(metrics prom.Metrics, checks []health.Check) {
	if e.collector != nil {
		e.collector.Include(metrics)
	}
	e.health.Set(checks...)
}

// advance follows what a run's events say about whether it trains.
type advance struct {
	mu   sync.Mutex
	why  string // why it does not train; "": it does
	step int
	end  bool
}

// Observe updates the progress from an event.
func (p *advance) Observe(e troupe.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case troupe.StepEvent:
		p.why, p.step = "", e.Step
	case troupe.StallEvent:
		p.why = fmt.Sprintf("no progress for %.0f s: %s", e.Quiet.Seconds(), e.Status.Explain())
	case troupe.RestartEvent:
		p.why = fmt.Sprintf("restarting from the last checkpoint: %v", e.Err)
	}
}

// End notes that the run has ended.
func (p *advance) End(troupe.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = true
}

// trains says why a run does not train. A paused run does what it was told to.
func (p *advance) trains(s event.Status) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.end:
		return "", errors.New("the run has ended")
	case p.why != "":
		return "", errors.New(p.why)
	}
	if s.Paused() {
		return fmt.Sprintf("paused after step %d", p.step), nil
	}
	return fmt.Sprintf("step %d", p.step), nil
}

// run serves the health of the process's only run, if there is a server.
func (e *exports) run(r *troupe.Run) {
	if e.server == nil {
		return
	}
	p := new(advance)
	e.follow(r, func() (observer, error) { return p, nil })
	e.health.Set(runChecks(r, p)...)
}

// runChecks are the checks of a run's health: its actors answer, and it trains.
func runChecks(r *troupe.Run, p *advance) []health.Check {
	return []health.Check{
		{Part: "actors", Live: true, Ask: func(ctx context.Context) (string, error) {
			if err := r.Ping(health.Within(ctx)); err != nil {
				return "", err
			}
			return "they answer", nil
		}},
		{Part: "training", Ask: func(context.Context) (string, error) { return p.trains(r.Status()) }},
	}
}
