package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/placement"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/planner"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
)

// Forecast is where a run's ranks would be computed, and what a step is predicted to take
// there.
type Forecast struct {
	Ranks      []RankForecast
	Links      []LinkForecast
	Costs      *planner.Costs
	CostsOf    string // the worker that measured them
	Prediction *planner.Prediction
}

// RankForecast is the place of a rank.
type RankForecast struct {
	Rank          int
	Worker, Host  string
	Cores         int
	Bytes, Memory int64 // that it takes, and that the worker has
}

// LinkForecast is the measured way from one worker to another.
type LinkForecast struct {
	From, To  string
	LatencyMS float64
	BytesPerS float64
}

// Forecast places a configuration's ranks as a run would now, measures the ways between
// their workers, and a layer's passes on the first of them, and predicts a step. Nothing is
// started.
func (c *Coordinator) Forecast(ctx context.Context, cfg *config.Config, seconds float64) (f *Forecast, err error) {
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		return nil, err
	}
	h := &hosts{Coordinator: c}
	a, _, err := h.choose(p.Config(), 1)
	if err != nil {
		return nil, err
	}
	defer a.unused()
	as := placement.Assignment{Config: p.Config(), Plan: p}
	if err := a.divide(as); err != nil {
		return nil, err
	}
	f = &Forecast{}
	bytes, err := p.RankBytes()
	if err != nil {
		return nil, err
	}
	of := make([]*share, len(bytes)) // of each rank
	for _, s := range a.shares {
		for _, r := range s.ranks {
			of[r] = s
		}
	}
	for r, s := range of {
		f.Ranks = append(f.Ranks, RankForecast{r, s.Name, s.host(), int(s.Offer.GetCores()), bytes[r], s.Offer.GetMemoryBytes()})
	}
	links, err := a.links(ctx)
	if err != nil {
		return nil, err
	}
	first := a.shares[0]
	f.CostsOf = first.Name
	if f.Costs, err = c.measure(ctx, first, p, seconds); err != nil {
		return nil, fmt.Errorf("worker %s: %w", first.Name, err)
	}
	for _, from := range a.shares {
		for _, to := range a.shares {
			if l := links[[2]string{from.Name, to.Name}]; l != nil {
				f.Links = append(f.Links, LinkForecast{from.Name, to.Name, l.GetLatencyMs(), l.GetBytesPerS()})
			}
		}
	}
	devices := planner.Devices{Devices: len(of), Message: func(from, to int, bytes int64) float64 {
		l := links[[2]string{of[from].Name, of[to].Name}]
		if l == nil {
			return 0 // within a worker
		}
		return l.GetLatencyMs() + 1e3*float64(bytes)/l.GetBytesPerS()
	}}
	f.Prediction, err = planner.Predict(p, f.Costs, devices)
	return f, err
}

// unused gives back workers that were chosen, and assigned nothing.
func (a *attempt) unused() {
	for _, s := range a.shares {
		a.c.free(s.ID, a)
	}
}

// links has every worker measure the way to every other, one after the other: they would
// disturb each other.
func (a *attempt) links(ctx context.Context) (map[[2]string]*wire.Link, error) {
	found := make(map[[2]string]*wire.Link)
	for _, from := range a.shares {
		var peers []*wire.Peer
		for _, to := range a.shares {
			if to != from {
				peers = append(peers, &wire.Peer{Name: to.Name, Incarnation: to.ID[:], Address: to.Address, DataAddress: to.DataAddress})
			}
		}
		if len(peers) == 0 {
			continue
		}
		reply, err := a.c.ask(ctx, from.ID, &wire.Control{Kind: &wire.Control_Connect{Connect: &wire.Connect{Peers: peers}}})
		if err != nil {
			return nil, err
		}
		for _, l := range reply.GetConnected().GetLinks() {
			if l.GetError() != "" || !(l.GetBytesPerS() > 0) || !(l.GetLatencyMs() >= 0) {
				return nil, fmt.Errorf("the way from %s to %.100s: %.1000s", from.Name, l.GetTo(), l.GetError())
			}
			found[[2]string{from.Name, l.GetTo()}] = l
		}
	}
	return found, nil
}

// measure has a worker measure what a model's layers take there.
func (c *Coordinator) measure(ctx context.Context, s *share, p *plan.Plan, seconds float64) (*planner.Costs, error) {
	model, err := json.Marshal(p.Model().Config)
	if err != nil {
		return nil, err
	}
	reply, err := c.ask(ctx, s.ID, &wire.Control{Kind: &wire.Control_Measure{Measure: &wire.Measure{Config: p.Config().TOML(), Model: model, Table: p.TableText(), Seconds: seconds}}})
	if err != nil {
		return nil, err
	}
	if text := reply.GetMeasured().GetError(); text != "" {
		return nil, errors.New(text)
	}
	return planner.ReadCosts(reply.GetMeasured().GetCosts())
}

// limitMeasureS bounds the time that a worker measures for.
const limitMeasureS = 60

// measure measures what a model's layers take here.
func (w *worker) measure(number uint64, m *wire.Measure) {
	answer := &wire.Measured{}
	costs, err := w.costs(m)
	if err == nil {
		answer.Costs, err = json.Marshal(costs)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	w.tell(&wire.Control{Request: number, Kind: &wire.Control_Measured{Measured: answer}})
}

func (w *worker) costs(m *wire.Measure) (*planner.Costs, error) {
	cfg, err := config.ParseStored("the coordinator's configuration", m.GetConfig())
	if err != nil {
		return nil, err
	}
	if w.cfg.Threads > 0 {
		cfg.Device.Threads = w.cfg.Threads
	}
	var model stages.Config
	if err := json.Unmarshal(m.GetModel(), &model); err != nil {
		return nil, fmt.Errorf("the model: %w", err)
	}
	var table []byte
	if len(m.GetTable()) > 0 {
		table = m.GetTable()
	}
	p, err := plan.NewOf(cfg, model, table)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*limitMeasureS*time.Second)
	defer cancel()
	return planner.Measure(ctx, p, []int{cfg.Batch.Microbatch}, min(m.GetSeconds(), limitMeasureS), nil)
}
