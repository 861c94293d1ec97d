package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
)

// Forecast is where a run's ranks would be computed, and what a step is predicted to take
// there.
type Forecast struct {
	Ranks      []RankForecast `json:"ranks"`
	Links      []LinkForecast `json:"links"`
	StepMS     float64        `json:"step_ms"`
	TokensPerS float64        `json:"tokens_per_s"`
	BubblePct  float64        `json:"bubble_pct"`
	MessageMS  float64        `json:"message_ms"` // of the slowest way between neighbours
	Apart      string         `json:"apart"`      // which tensor groups are on several hosts, or which workers have no ranks since none is; "": neither
}

// RankForecast is the place of a rank.
type RankForecast struct {
	Rank        int    `json:"rank"`
	Worker      string `json:"worker"`
	Host        string `json:"host"`
	Cores       int    `json:"cores"`        // of the worker
	Device      string `json:"device"`       // that it computes on; "": the CPU
	Bytes       int64  `json:"bytes"`        // that the rank takes there
	MemoryBytes int64  `json:"memory_bytes"` // that the worker has, or the GPU
}

// LinkForecast is the measured way from one worker to another.
type LinkForecast struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	LatencyMS float64 `json:"latency_ms"`
	BytesPerS float64 `json:"bytes_per_s"`
}

// Forecast places a configuration's ranks as a run would now, measures the ways between
// their workers and a layer's passes on each, and predicts a step. Nothing is
// started.
func (c *Coordinator) Forecast(ctx context.Context, cfg *config.Config, seconds float64) (f *Forecast, err error) {
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
	f = &Forecast{Apart: a.apart}
	bytes, err := p.RankBytes()
	if err != nil {
		return nil, err
	}
	tensors, err := p.TensorBytes()
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
		name, needs, has := s.of(p.Config(), r, bytes, tensors)
		f.Ranks = append(f.Ranks, RankForecast{r, s.Name, s.host(), int(s.Offer.GetCores()), name, needs, has})
	}
	links, err := a.links(ctx)
	if err != nil {
		return nil, err
	}
	crowded := links
	if p.Grouped() {
		if crowded, err = a.crowded(ctx); err != nil {
			return nil, err
		}
	}
	carried, err := a.carried(ctx)
	if err != nil {
		return nil, err
	}
	costs, err := a.costs(ctx, p, seconds)
	if err != nil {
		return nil, err
	}
	for _, from := range a.busy() {
		for _, to := range a.busy() {
			if l := links[[2]string{from.Name, to.Name}]; l != nil {
				f.Links = append(f.Links, LinkForecast{from.Name, to.Name, l.GetLatencyMs(), l.GetBytesPerS()})
			}
		}
	}
	got, err := forecast.Predict(p, nil, a.devices(p.Grid(), of, links, crowded, carried, costs))
	if err != nil {
		return nil, err
	}
	f.StepMS, f.TokensPerS, f.BubblePct, f.MessageMS = got.StepMS, got.TokensPerS, got.BubblePct, got.MessageMS
	return f, nil
}

// devices are what a plan's grid is computed on: of is the share of each rank, links are those that one worker at a time
// sends over, crowded the same where all send; carried is by worker what a byte takes of its computing, in nanoseconds.
func (a *attempt) devices(g *grid.Grid, of []*share, links, crowded map[[2]string]*wire.Link, carried map[string]float64, costs map[uuid.UUID]*forecast.Costs) forecast.Devices {
	// The slowest of a stage's ranks holds up the others.
	slowest := func(stage int, ms func(rank int) float64) (most float64) {
		for r := range of {
			if g.Coordinates(r)[grid.Pipeline] == stage {
				most = max(most, ms(r))
			}
		}
		return most
	}
	between := func(from, to int) *wire.Link { return links[[2]string{of[from].Name, of[to].Name}] } // nil: within a worker
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
			c := costs[of[r].ID]
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
					if rate := crowded[[2]string{of[r].Name, of[other].Name}].GetBytesPerS(); bytesPerS == 0 || rate < bytesPerS {
						bytesPerS = rate
					}
				}
			}
			return 0
		})
		return latencyMS, bytesPerS
	}, CarryNS: func(stage int) float64 {
		return slowest(stage, func(r int) float64 {
			if len(of[r].devices) > 0 { // which compute beside the processors that carry
				return 0
			}
			return carried[of[r].Name]
		})
	}}
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
	busy := a.busy()
	links := make([][]*wire.Link, len(busy))
	for i, from := range busy {
		var err error
		if links[i], err = a.linksFrom(ctx, from); err != nil {
			return nil, fmt.Errorf("worker %s: %w", from.Name, err)
		}
	}
	return byEnds(busy, links), nil
}

// crowded is links while all workers send at once, as they do in collectives.
func (a *attempt) crowded(ctx context.Context) (map[[2]string]*wire.Link, error) {
	busy := a.busy()
	links, err := eachOf(busy, func(i int) ([]*wire.Link, error) { return a.linksFrom(ctx, busy[i]) })
	if err != nil {
		return nil, err
	}
	return byEnds(busy, links), nil
}

// byEnds are the links of each worker by its name and that of the other end.
func byEnds(workers []*share, links [][]*wire.Link) map[[2]string]*wire.Link {
	found := make(map[[2]string]*wire.Link)
	for i, from := range workers {
		for _, l := range links[i] {
			found[[2]string{from.Name, l.GetTo()}] = l
		}
	}
	return found
}

// linksFrom has a worker measure the way to every other.
func (a *attempt) linksFrom(ctx context.Context, from *share) ([]*wire.Link, error) {
	var peers []*wire.Peer
	for _, to := range a.busy() {
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
			return nil, fmt.Errorf("the way to %.100s: %g bytes a second, %g ms: %.1000s", l.GetTo(), l.GetBytesPerS(), l.GetLatencyMs(), l.GetError())
		}
	}
	return reply.GetConnected().GetLinks(), nil
}

// costs has all workers measure what the model's layers take there, at the same time: in the
// run they compute at the same time too, and those of one host share its memory.
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

// measure has a worker measure what a model's layers take there.
func (c *Coordinator) measure(ctx context.Context, s *share, p *plan.Plan, seconds float64) (*forecast.Costs, error) {
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
	return forecast.ReadCosts(reply.GetMeasured().GetCosts())
}

// limitMeasureS bounds the time that a worker measures for.
const limitMeasureS = 60

// measure measures what a model's layers take here.
func (w *membership) measure(number uint64, m *wire.Measure) {
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

func (w *worker) costs(m *wire.Measure) (*forecast.Costs, error) {
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
	return forecast.MeasureRank(ctx, p, []int{cfg.Batch.Microbatch}, min(m.GetSeconds(), limitMeasureS))
}

// forecast answers an operator who asks for one.
func (a *answerer) forecast(m *wire.ForecastRequest) error {
	if n := len(m.GetSets()); n > limitSets {
		return fmt.Errorf("%w: %d --set values; the limit is %d", ErrRequest, n, limitSets)
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
		r.Ranks = append(r.Ranks, &wire.ForecastRank{Rank: small(k.Rank), Worker: k.Worker, Host: k.Host, Cores: small(k.Cores), Bytes: k.Bytes, MemoryBytes: k.MemoryBytes, Device: k.Device})
	}
	for _, l := range f.Links {
		r.Links = append(r.Links, &wire.ForecastLink{From: l.From, To: l.To, LatencyMs: l.LatencyMS, BytesPerS: l.BytesPerS})
	}
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Forecast{Forecast: r}})
}
