package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// links makes every worker measure the links to all others, one worker after the other so that they
// don't disturb each other.
func (a *attempt) links(ctx context.Context) (map[[2]string]*wire.Link, error) {
	busy := a.busy()
	links := make([][]*wire.Link, len(busy))
	for i, from := range busy {
		var err error
		if links[i], err = a.linksFrom(ctx, from, busy); err != nil {
			return nil, fmt.Errorf("worker %s: %w", from.Name, err)
		}
	}
	return byEnds(busy, links), nil
}

// crowded is links, but all workers send at once, as they do in collectives.
func (a *attempt) crowded(ctx context.Context) (map[[2]string]*wire.Link, error) {
	busy := a.busy()
	links, err := eachOf(busy, func(i int) ([]*wire.Link, error) { return a.linksFrom(ctx, busy[i], busy) })
	if err != nil {
		return nil, err
	}
	return byEnds(busy, links), nil
}

// byEnds maps the links by the names of both ends.
func byEnds(workers []*share, links [][]*wire.Link) map[[2]string]*wire.Link {
	found := make(map[[2]string]*wire.Link)
	for i, from := range workers {
		for _, l := range links[i] {
			found[[2]string{from.Name, l.GetTo()}] = l
		}
	}
	return found
}

// linksFrom makes a worker measure the links to others.
func (a *attempt) linksFrom(ctx context.Context, from *share, others []*share) ([]*wire.Link, error) {
	var peers []*wire.Peer
	for _, to := range others {
		if to != from {
			peers = append(peers, to.peer())
		}
	}
	if len(peers) == 0 {
		return nil, nil
	}
	reply, err := a.c.ask(ctx, from.ID, &wire.Control{Kind: &wire.Control_Connect{Connect: &wire.Connect{Peers: peers}}})
	if err != nil {
		return nil, err
	}
	for _, l := range reply.GetConnected().GetLinks() {
		if l.GetError() != "" || !(l.GetBytesPerS() > 0) || !(l.GetLatencyMs() >= 0) {
			return nil, fmt.Errorf("measure the link to %.100s: %g bytes/s, %g ms: %.1000s", l.GetTo(), l.GetBytesPerS(), l.GetLatencyMs(),
				l.GetError())
		}
	}
	return reply.GetConnected().GetLinks(), nil
}

// costs makes all workers measure how long the model's layers take there. They measure at the same
// time, as they would compute in a run: workers on one host share its memory.
func (a *attempt) costs(ctx context.Context, p *plan.Plan, seconds float64) (map[uuid.UUID]*forecast.Costs, error) {
	busy := a.busy()
	costs, err := eachOf(busy, func(i int) (*forecast.Costs, error) { return a.c.measure(ctx, busy[i], p, seconds) })
	if err != nil {
		return nil, err
	}
	all := make(map[uuid.UUID]*forecast.Costs)
	for i, s := range busy {
		all[s.ID] = costs[i]
	}
	return all, nil
}

// measure makes a worker measure how long a model's layers take there.
func (c *Coordinator) measure(ctx context.Context, s *share, p *plan.Plan, seconds float64) (*forecast.Costs, error) {
	model, err := json.Marshal(p.Model().Config)
	if err != nil {
		return nil, err
	}
	reply, err := c.ask(ctx, s.ID, &wire.Control{Kind: &wire.Control_Measure{Measure: &wire.Measure{Config: p.Config().TOML(), Model: model,
		Table: p.TableText(), Seconds: seconds}}})
	if err != nil {
		return nil, err
	}
	if text := reply.GetMeasured().GetError(); text != "" {
		return nil, errors.New(text)
	}
	return forecast.ReadCosts(reply.GetMeasured().GetCosts())
}

// carried makes all workers compute while each sends to the next. It returns the compute time in ns that each worker
// loses for each byte; nil: there is only one worker.
func (a *attempt) carried(ctx context.Context) (map[string]float64, error) {
	busy := a.busy()
	if len(busy) < 2 {
		return nil, nil
	}
	ns, err := eachOf(busy, func(i int) (float64, error) { return a.carriedBy(ctx, busy[i], busy[(i+1)%len(busy)]) })
	if err != nil {
		return nil, fmt.Errorf("measure the compute time that messages cost: %w", err)
	}
	found := make(map[string]float64)
	for i, s := range busy {
		found[s.Name] = ns[i]
	}
	return found, nil
}

func (a *attempt) carriedBy(ctx context.Context, from, to *share) (float64, error) {
	reply, err := a.c.ask(ctx, from.ID, &wire.Control{Kind: &wire.Control_Carry{Carry: &wire.Carry{To: to.peer()}}})
	if err != nil {
		return 0, err
	}
	got := reply.GetCarried()
	if got.GetError() != "" || !(got.GetByteNs() >= 0) {
		return 0, fmt.Errorf("send to %s: %g ns for each byte: %.1000s", to.Name, got.GetByteNs(), got.GetError())
	}
	return got.GetByteNs(), nil
}
