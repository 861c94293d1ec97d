package planner

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// ErrDevices: a configuration does not go with the devices.
var ErrDevices = errors.New("devices")

// Devices is what a model is to be trained on: equal devices, each with a rank, or one
// that all ranks share.
type Devices struct {
	Devices int
	// MemoryBytes is what each device has for a run; 0: not known.
	MemoryBytes int64
	// A message of n bytes between two devices takes LatencyUS microseconds, and n by
	// BytesPerS; 0: no time.
	LatencyUS float64
	BytesPerS float64
	// Message, if there is one, is how many milliseconds a message of some bytes takes from
	// one rank to another, in place of these.
	Message func(from, to int, bytes int64) float64
	// Costs, if there is one, are those measured on a rank's own device, in place of one
	// device's for all.
	Costs func(rank int) *Costs
}

// messageMS is how long a message is under way.
func (c Devices) messageMS(bytes int64) float64 {
	ms := c.LatencyUS / 1e3
	if c.BytesPerS > 0 {
		ms += 1e3 * float64(bytes) / c.BytesPerS
	}
	return ms
}

// Prediction is what a step of a configuration is predicted to take.
type Prediction struct {
	StepMS     float64 `json:"step_ms"`
	TokensPerS float64 `json:"tokens_per_s"`
	MakespanMS float64 `json:"makespan_ms"` // from the first action's start to the last one's end; steps may overlap
	UpdateMS   float64 `json:"update_ms"`   // what norms and the optimizer add
	BubblePct  float64 `json:"bubble_pct"`
	MessageMS  float64 `json:"message_ms"` // of one between two ranks
	// Memory, by device: tensors, and the copy that a checkpoint is written from.
	TensorBytes     []int64 `json:"tensor_bytes,omitempty"`
	CheckpointBytes []int64 `json:"checkpoint_bytes,omitempty"`
	PeakInFlight    []int   `json:"peak_in_flight"` // outputs, by rank

	Order    *scheduler.Table    `json:"-"` // the table, or, of a dynamic schedule, the order that it was played in
	Timeline *scheduler.Timeline `json:"-"`
}

// NeedBytes is the memory that the fullest device needs.
func (p *Prediction) NeedBytes() int64 {
	var most int64
	for d := range p.TensorBytes {
		most = max(most, p.TensorBytes[d]+p.CheckpointBytes[d])
	}
	return most
}

// Predict plays a configuration's table with costs on a cluster, or the dynamic order that
// follows it. It says nothing about memory: see Memory.
func Predict(b *plan.Plan, costs *Costs, cluster Devices) (*Prediction, error) {
	cfg, t := b.Config(), b.Table()
	if err := oneKind(b); err != nil {
		return nil, err
	}
	if cluster.Devices > 1 && t.NumRanks() > cluster.Devices {
		return nil, fmt.Errorf("%w: %d ranks on %d: give each rank one of its own, or all ranks a single one", ErrDevices, t.NumRanks(), cluster.Devices)
	}
	ofRank := make([]*Costs, t.NumRanks())
	batches := make([]BatchCosts, t.NumRanks())
	var err error
	for r := range ofRank {
		if ofRank[r] = costs; cluster.Costs != nil {
			ofRank[r] = cluster.Costs(r)
		}
		if batches[r], err = ofRank[r].batchFor(b); err != nil {
			return nil, err
		}
	}
	p := &Prediction{PeakInFlight: b.Report().PeakInFlight, Order: t}
	machine := scheduler.Machine{Costs: actionCosts(b, batches)}
	weights := b.Parameters()
	if cluster.Devices > 1 {
		bytes := int64(b.EdgeType().Size()) * int64(cfg.Batch.Microbatch) * int64(cfg.Model.Context) * int64(b.Model().Config.Hidden)
		if p.MessageMS = cluster.messageMS(bytes); !(p.MessageMS >= 0) || math.IsInf(p.MessageMS, 1) {
			return nil, fmt.Errorf("%w: a message of %d bytes takes %v ms, want a finite number from 0: look at latency and bandwidth", ErrDevices, bytes, p.MessageMS)
		}
		machine.Link = func(int, int) float64 { return p.MessageMS }
		if cluster.Message != nil {
			machine.Link = func(from, to int) float64 { return cluster.Message(from, to, bytes) }
			p.MessageMS = 0
			for r := range t.NumRanks() - 1 {
				p.MessageMS = max(p.MessageMS, machine.Link(r, r+1))
			}
		}
		for r, n := range weights {
			p.UpdateMS = max(p.UpdateMS, ofRank[r].UpdateNS*float64(n)/1e6)
		}
	} else {
		machine.Share = costs.Share
		for _, n := range weights {
			p.UpdateMS += costs.UpdateNS * float64(n) / 1e6
		}
	}
	if bound := b.DynamicBound(); bound > 0 {
		var report *scheduler.Report
		if p.Order, report, p.Timeline, err = machine.PlayDynamic(t, bound); err == nil {
			p.PeakInFlight = report.PeakInFlight
		}
	} else {
		p.Timeline, err = machine.Simulate(t)
	}
	if err != nil {
		return nil, err
	}
	p.MakespanMS, p.BubblePct = p.Timeline.Makespan, 100*p.Timeline.BubbleFraction
	p.StepMS = p.MakespanMS + p.UpdateMS
	if cfg.Pipeline.PostValidation {
		switch p.Timeline.SteadyStateStep, err = machine.SteadyStateStep(t); {
		case err == nil:
			p.StepMS = p.Timeline.SteadyStateStep + p.UpdateMS
			p.BubblePct = 100 * max(0, 1-sum(p.Timeline.Busy)/(float64(t.NumRanks())*p.Timeline.SteadyStateStep))
		case !errors.Is(err, scheduler.ErrPeriod): // it is not known where ranks share cores
			return nil, err
		}
	}
	p.TokensPerS = 1e3 * float64(cfg.Batch.Sequences*cfg.Model.Context) / p.StepMS
	return p, nil
}

// oneKind refuses a configuration whose ranks compute on devices of several kinds: costs
// are those of one.
func oneKind(b *plan.Plan) error {
	for r := range b.Table().NumRanks() {
		if first, kind := b.DeviceKind(0), b.DeviceKind(r); kind != first {
			return b.Config().Errorf("device.ranks", "ranks 0 and %d compute on %s and %s, and layer costs are those of one device; plan for each kind by itself, without this key", r, first, kind)
		}
	}
	return nil
}

// Memory adds what each device holds.
func (p *Prediction) Memory(b *plan.Plan, cluster Devices) error {
	tensors, err := b.MemoryBytes()
	if err != nil {
		return err
	}
	devices := len(tensors)
	if cluster.Devices <= 1 {
		devices = 1
	}
	weights := b.Parameters()
	p.TensorBytes, p.CheckpointBytes = make([]int64, devices), make([]int64, devices)
	for r, bytes := range tensors {
		p.TensorBytes[r%devices] += bytes
		p.CheckpointBytes[r%devices] += b.CheckpointBytes(weights[r])
	}
	return nil
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// actionCosts are the sums of a chunk's layers; what is recomputed, the backward takes
// once more.
func actionCosts(b *plan.Plan, batches []BatchCosts) scheduler.Costs {
	layout := b.Layout()
	of := func(chunk int) BatchCosts { return batches[b.Table().RankOf(chunk)] }
	byChunk := make([][scheduler.B + 1]float64, len(layout.Chunks))
	again := make([]float64, len(layout.Chunks)) // of the layers that recompute
	for v, symbols := range layout.Chunks {
		batch := of(v)
		for _, s := range symbols {
			for t := scheduler.F; t <= scheduler.B; t++ {
				byChunk[v][t] += batch.of(s, t)
			}
			if s == scheduler.SymbolLayer || s == scheduler.SymbolMTP {
				again[v] += batch.of(s, scheduler.F)
			}
		}
	}
	recomputes, headLater := b.Recomputes(), b.HeadLater()
	apart := headApart(byChunk[len(byChunk)-1], of(len(byChunk)-1))
	return func(rank int, a scheduler.Action) float64 {
		ms := byChunk[a.Chunk][a.Type]
		if int(a.Chunk) == len(byChunk)-1 && headLater(int(a.Microbatch)) {
			ms = apart[a.Type]
		}
		if (a.Type == scheduler.I || a.Type == scheduler.B) && recomputes(rank, int(a.Microbatch)) {
			ms += again[a.Chunk]
		}
		return ms
	}
}

// batchFor are the costs at a plan's size of microbatch, of all that its model has.
func (c *Costs) batchFor(b *plan.Plan) (BatchCosts, error) {
	cfg := b.Config()
	if err := c.fits(cfg.Model.Context, b.Model().Config.Hidden); err != nil {
		return BatchCosts{}, err
	}
	batch, err := c.Batch(cfg.Batch.Microbatch)
	if err != nil {
		return batch, err
	}
	if s := b.Model().Symbols(); strings.ContainsRune(s, stages.SymbolMTP) {
		if _, ok := batch.Layers[string(stages.SymbolMTP)]; !ok {
			return batch, fmt.Errorf("%w: of microbatch %d, the layer m is missing, of which the model has %d", ErrCosts, batch.Microbatch, b.Model().Config.MTPLayers)
		}
	}
	return batch, nil
}

// headApart are the costs of the last chunk where the head's weight gradient is put off.
// Otherwise its forward makes it: one of three products of equal size.
func headApart(last [scheduler.B + 1]float64, batch BatchCosts) (apart [scheduler.B + 1]float64) {
	product := batch.of(scheduler.SymbolLoss, scheduler.F) / 3
	weight := batch.of(scheduler.SymbolLoss, scheduler.W)
	apart[scheduler.F] = last[scheduler.F] - product
	apart[scheduler.W] = product + weight
	apart[scheduler.I] = last[scheduler.B] - weight
	apart[scheduler.B] = last[scheduler.B] + product
	return apart
}
