package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/internal/wire"
)

// control handles a worker's control message.
func (c *Coordinator) control(from uuid.UUID, m *wire.Control) {
	if c.replied(from, m) {
		return
	}
	if a := c.attemptOf(from); a != nil {
		a.answer(from, m)
	}
}

// attemptOf returns the attempt that a worker belongs to; nil: none.
func (c *Coordinator) attemptOf(worker uuid.UUID) *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[worker]; w != nil {
		return w.attempt
	}
	return nil
}

// status handles what a worker's actors are doing.
func (c *Coordinator) status(m beat.Member, s *wire.StatusReply) {
	if a := c.attemptOf(m.ID); a != nil {
		a.observe(m, s)
	}
}

// far handles the list of processes that a worker can't reach, and checks whether the coordinator's messages reach the
// worker. It does so for workers without ranks too: they may get ranks soon, or have another request to answer.
func (c *Coordinator) far(m beat.Member, far []*wire.Unreachable) {
	a := c.attemptOf(m.ID)
	quiet := c.mesh.Quiet(m.ID)
	if quiet < c.cfg.Silence {
		quiet = 0
	}
	if a != nil {
		a.unreachable(m, far)
		if quiet == 0 && len(far) == 0 {
			a.well(m.Name)
		}
	}
	why := fmt.Errorf("it has not acknowledged messages for %.1f s", quiet.Seconds())
	switch {
	case quiet == 0:
	case quiet < unreachableSilences*c.cfg.Silence:
		if a != nil {
			a.stalled(m.Name, quiet, why)
		}
	default:
		c.beats.Expel(m.ID, why)
	}
}

// question is a pending request to a worker.
type question struct {
	worker uuid.UUID
	reply  chan *wire.Control // with a buffer of 1
}

// ask sends a worker a request and waits for its reply.
func (c *Coordinator) ask(ctx context.Context, worker uuid.UUID, m *wire.Control) (*wire.Control, error) {
	reply := make(chan *wire.Control, 1)
	c.mu.Lock()
	c.requests++
	m.Request = c.requests
	c.asked[m.GetRequest()] = question{worker, reply}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asked, m.GetRequest())
	}()
	if err := c.mesh.Control(worker, m); err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		_, there := c.workers[worker]
		changed := c.changed
		c.mu.Unlock()
		if !there {
			return nil, fmt.Errorf("worker %v has left the cluster", worker)
		}
		select {
		case got := <-reply:
			return got, nil
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// replied passes a reply to the goroutine that waits for it. It reports whether the message is a reply from the worker
// that got the request.
func (c *Coordinator) replied(from uuid.UUID, m *wire.Control) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, asked := c.asked[m.GetRequest()]
	if !asked || q.worker != from {
		return false
	}
	delete(c.asked, m.GetRequest())
	q.reply <- m
	return true
}

// eachOf sends a request to all workers at once and returns the replies in the workers' order. Its errors name the
// workers.
func eachOf[T any](workers []*share, ask func(i int) (T, error)) ([]T, error) {
	answers, errs := make([]T, len(workers)), make([]error, len(workers))
	var asked sync.WaitGroup
	for i, s := range workers {
		asked.Go(func() { // ends with ask
			if answers[i], errs[i] = ask(i); errs[i] != nil {
				errs[i] = fmt.Errorf("worker %s: %w", s.Name, errs[i])
			}
		})
	}
	asked.Wait()
	return answers, errors.Join(errs...)
}
