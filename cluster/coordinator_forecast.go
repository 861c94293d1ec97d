package cluster

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Forecast says where a run's ranks would be computed, and how long a step is predicted to take
// there.
type Forecast struct {
	Ranks      []RankForecast `json:"ranks"`
	Links      []LinkForecast `json:"links"`
	StepMS     float64        `json:"step_ms"`
	TokensPerS float64        `json:"tokens_per_s"`
	BubblePct  float64        `json:"bubble_pct"`
	MessageMS  float64        `json:"message_ms"` // of an activation on the slowest link between neighboring stages
	// a warning about tensor groups on several hosts, or about workers without ranks; "": none
	Apart string `json:"apart"`
}

// RankForecast is the place of a rank.
type RankForecast struct {
	Rank        int    `json:"rank"`
	Worker      string `json:"worker"`
	Host        string `json:"host"`
	Cores       int    `json:"cores"`        // of the worker
	Device      string `json:"device"`       // name of the GPU; "": the CPU
	Bytes       int64  `json:"bytes"`        // memory that the rank needs there
	MemoryBytes int64  `json:"memory_bytes"` // of the GPU, or of the worker's host
}

// LinkForecast is the measured link from one worker to another.
type LinkForecast struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	LatencyMS float64 `json:"latency_ms"`
	BytesPerS float64 `json:"bytes_per_s"`
}

// Forecast places a config's ranks as a run would now, measures the links between the workers and
// the passes of a layer on each for the given seconds, and predicts a step. It starts no run.
func (c *Coordinator) Forecast(ctx context.Context, cfg *config.Config, seconds float64) (*Forecast, error) {
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		return nil, err
	}
	h := &hosts{Coordinator: c}
	a, _, err := h.choose(p.Config(), 1, false)
	if err != nil {
		return nil, err
	}
	defer a.unused()
	as := plan.Assignment{Config: p.Config(), Plan: p}
	if err := a.divide(as); err != nil {
		return nil, err
	}
	of, f, err := a.placed(p)
	if err != nil {
		return nil, err
	}
	m, err := a.measured(ctx, p, seconds)
	if err != nil {
		return nil, err
	}
	for _, from := range a.busy() {
		for _, to := range a.busy() {
			if l := m.links[[2]string{from.Name, to.Name}]; l != nil {
				f.Links = append(f.Links, LinkForecast{from.Name, to.Name, l.GetLatencyMs(), l.GetBytesPerS()})
			}
		}
	}
	got, err := forecast.Predict(p, nil, a.devices(p.Grid(), of, m))
	if err != nil {
		return nil, err
	}
	f.StepMS, f.TokensPerS, f.BubblePct, f.MessageMS = got.StepMS, got.TokensPerS, got.BubblePct, got.MessageMS
	return f, nil
}

// placed returns the share of each rank, and a forecast with the ranks' places.
func (a *attempt) placed(p *plan.Plan) (of []*share, f *Forecast, err error) {
	bytes, err := a.hostBytes(p, a.shadows)
	if err != nil {
		return nil, nil, err
	}
	tensors, err := p.TensorBytes()
	if err != nil {
		return nil, nil, err
	}
	of = a.byRank(p)
	f = &Forecast{Apart: a.apart}
	for r, s := range of {
		name, needs, has := s.of(p.Config(), r, bytes, tensors)
		f.Ranks = append(f.Ranks, RankForecast{r, s.Name, s.host(), int(s.Offer.GetCores()), name, needs, has})
	}
	return of, f, nil
}

// measurements are the workers' measurements for a forecast.
type measurements struct {
	links   map[[2]string]*wire.Link // by the names of both ends, measured while one worker at a time sends
	crowded map[[2]string]*wire.Link // the same, measured while all workers send
	carried map[string]float64       // by a worker's name: compute time in ns that it loses for each byte sent or received
	costs   map[uuid.UUID]*forecast.Costs
}

func (a *attempt) measured(ctx context.Context, p *plan.Plan, seconds float64) (m measurements, err error) {
	if m.links, err = a.links(ctx); err != nil {
		return m, err
	}
	m.crowded = m.links
	if p.Grouped() {
		if m.crowded, err = a.crowded(ctx); err != nil {
			return m, err
		}
	}
	if m.carried, err = a.carried(ctx); err != nil {
		return m, err
	}
	m.costs, err = a.costs(ctx, p, seconds)
	return m, err
}

// devices describes the workers to the forecast of a step. of is the share of each rank.
func (a *attempt) devices(g *grid.Grid, of []*share, m measurements) forecast.Devices {
	// The slowest of a stage's ranks delays the others.
	slowest := func(stage int, ms func(rank int) float64) (most float64) {
		for r := range of {
			if g.Coordinates(r)[grid.Pipeline] == stage {
				most = max(most, ms(r))
			}
		}
		return most
	}
	between := func(from, to int) *wire.Link { return m.links[[2]string{of[from].Name, of[to].Name}] } // nil: within a worker
	return forecast.Devices{Devices: len(of), Message: func(from, to int, bytes int64) float64 {
		return slowest(from, func(r int) float64 {
			at := g.Coordinates(r)
			at[grid.Pipeline] = to
			at[grid.Tensor] = min(at[grid.Tensor], g.TensorSize(to)-1)
			l := between(r, g.Rank(at))
			if l == nil {
				return 0
			}
			return l.GetLatencyMs() + 1e3*float64(bytes)/l.GetBytesPerS()
		})
	}, Costs: func(stage int) *forecast.Costs {
		var found *forecast.Costs
		slowest(stage, func(r int) float64 {
			c := m.costs[of[r].ID]
			if found == nil || c.LayerMS() > found.LayerMS() {
				found = c
			}
			return 0
		})
		return found
	}, Group: func(stage int, d grid.Dimension) (latencyMS, bytesPerS float64) {
		slowest(stage, func(r int) float64 {
			for _, other := range g.Group(r, d) {
				if l := between(r, other); l != nil {
					latencyMS = max(latencyMS, l.GetLatencyMs())
					if rate := m.crowded[[2]string{of[r].Name, of[other].Name}].GetBytesPerS(); bytesPerS == 0 || rate < bytesPerS {
						bytesPerS = rate
					}
				}
			}
			return 0
		})
		return latencyMS, bytesPerS
	}, CarryNS: func(stage int) float64 {
		return slowest(stage, func(r int) float64 {
			if len(of[r].devices) > 0 { // a GPU computes while the CPU sends and receives
				return 0
			}
			return m.carried[of[r].Name]
		})
	}}
}

// forecast answers an operator's request for a forecast.
func (a *answerer) forecast(m *wire.ForecastRequest) error {
	if n := len(m.GetSets()); n > limitSets {
		return fmt.Errorf("%w: the request has %d --set values; the limit is %d", ErrRequest, n, limitSets)
	}
	cfg, err := a.c.parse(m.GetFile(), m.GetConfig(), m.GetSets(), m.GetRegistered(), m.GetVariables())
	if err != nil {
		return err
	}
	stop := a.alive()
	f, err := a.c.Forecast(a.ctx, cfg, m.GetSeconds())
	stop()
	if err != nil {
		return err
	}
	r := &wire.ForecastReply{StepMs: f.StepMS, TokensPerS: f.TokensPerS, BubblePct: f.BubblePct, MessageMs: f.MessageMS, Apart: f.Apart}
	for _, k := range f.Ranks {
		r.Ranks = append(r.Ranks, &wire.ForecastRank{Rank: apiwire.Small(k.Rank), Worker: k.Worker, Host: k.Host, Cores: apiwire.Small(k.Cores),
			Bytes: k.Bytes, MemoryBytes: k.MemoryBytes, Device: k.Device})
	}
	for _, l := range f.Links {
		r.Links = append(r.Links, &wire.ForecastLink{From: l.From, To: l.To, LatencyMs: l.LatencyMS, BytesPerS: l.BytesPerS})
	}
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Forecast{Forecast: r}})
}
