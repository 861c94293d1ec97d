package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/process"
)

// State returns the coordinator's state, for metrics.
func (c *Coordinator) State() process.Coordinator {
	s := process.Coordinator{Build: c.build, Rejected: len(c.unreachable.list(time.Now())), Restarts: c.runs.restarts.Load(),
		Runs: make(map[string]int), Tokens: make(map[string]int)}
	for _, m := range c.Members() {
		s.Workers = append(s.Workers, process.Member{Name: m.Name, Busy: len(m.Ranks) > 0, Heard: c.awake.Since(m.Heard), Ahead: m.ClockAhead})
	}
	c.mu.Lock()
	s.Joins, s.Left, s.Failed = c.joins, c.left, c.failed
	c.mu.Unlock()
	for _, state := range states { // all, so that a state without runs shows as 0
		s.Runs[state] = 0
	}
	for _, r := range c.runs.list() {
		s.Runs[stateName(r.summary().GetState())]++
	}
	now := clock.Now()
	for _, role := range []Role{RoleWorker, RoleOperator, RoleViewer} {
		s.Tokens[string(role)] = 0
	}
	for _, t := range c.authority.Tokens() {
		if !t.Revoked && now.Before(t.Expires) {
			s.Tokens[string(t.Role)]++
		}
	}
	frozen, _ := c.awake.Frozen()
	s.Frozen = frozen.Seconds()
	return s
}

// stateName is the name of a run's state.
func stateName(s wire.RunSummary_State) string {
	if n := int(s); n >= 0 && n < len(states) {
		return states[n]
	}
	return "unknown"
}

// Checks returns the checks of the coordinator's health. It works if its actors and its list of runs answer. It is ready
// if it also listens, has a valid certificate, and can write to its folder, which no other coordinator uses.
func (c *Coordinator) Checks() []health.Check {
	checks := []health.Check{
		{Part: "actors", Live: true, Ask: func(ctx context.Context) (string, error) {
			if err := pingActors(ctx, c.system); err != nil {
				return "", err
			}
			return "they answer", nil
		}},
		{Part: "members", Live: true, Ask: func(context.Context) (string, error) {
			return words.Plural(len(c.Members()), "worker"), nil
		}},
		{Part: "runs", Live: true, Ask: c.checkRuns},
		{Part: "listener", Ask: func(ctx context.Context) (string, error) {
			at := c.listensAt()
			if err := probe(ctx, at); err != nil {
				return "", fmt.Errorf("can't connect to its own address %s: %w", at, err)
			}
			return "listens at " + at, nil
		}},
		{Part: "certificate", Ask: func(context.Context) (string, error) {
			if err := pki.Expired(c.keeper, clock.Now()); err != nil {
				return "", err
			}
			return "valid", nil
		}},
	}
	if c.cfg.Dir != "" {
		checks = append(checks, health.Check{Part: "folder", Ask: func(context.Context) (string, error) {
			if err := c.runs.check(); err != nil {
				return "", err
			}
			return c.cfg.Dir + " can be written to, and is locked by this coordinator", nil
		}})
	}
	return checks
}

// checkRuns checks that the actors of each run answer.
func (c *Coordinator) checkRuns(ctx context.Context) (string, error) {
	var (
		asked sync.WaitGroup // all at once: one that hangs must not take the others' time
		mu    sync.Mutex
		late  []string
		going int
	)
	for _, r := range c.runs.list() {
		r.mu.Lock()
		inner, over := r.inner, r.over()
		r.mu.Unlock()
		if over {
			continue
		}
		going++
		if inner == nil {
			continue
		}
		asked.Go(func() { // ends with the check's time
			if err := inner.Ping(health.Within(ctx)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, fmt.Sprintf("run %s: %v", r.id, err))
			}
		})
	}
	asked.Wait()
	if len(late) > 0 {
		slices.Sort(late)
		return "", errors.New(strings.Join(late, "; "))
	}
	return words.Plural(going, "run") + " in progress", nil
}

// check checks the coordinator's folder.
func (s *runs) check() error {
	s.mu.Lock()
	j := s.journal
	s.mu.Unlock()
	if j == nil {
		return ErrClosing
	}
	return j.Check() // without the lock: a disk that hangs must not stop the requests
}

// listensAt is the address that this host reaches the coordinator at: the one it listens at, with the port of the
// advertised one if any free port was requested.
func (c *Coordinator) listensAt() string {
	host, port, err := net.SplitHostPort(c.cfg.Listen)
	if err != nil {
		return c.Address()
	}
	if port == "0" {
		return c.Address()
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// pingActors waits until an actor of a system answers.
func pingActors(ctx context.Context, system *actor.ActorSystem) error {
	pid := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(pingMessage); ok {
			c.Respond(pingMessage{})
		}
	}))
	defer system.Root.Stop(pid)
	if _, err := system.Root.RequestFuture(pid, pingMessage{}, health.Within(ctx)).Result(); err != nil {
		return fmt.Errorf("the process's actors do not answer: %w", err)
	}
	return nil
}

// pingMessage asks an actor to answer.
type pingMessage struct{}
