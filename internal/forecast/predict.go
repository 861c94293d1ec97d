package forecast

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// ErrDevices: a configuration does not fit the devices.
var ErrDevices = errors.New("devices")

// Devices are the devices to train on: equal devices, each with a rank of the grid, or one
// device that all ranks share.
type Devices struct {
	Devices int
	// MemoryBytes is the memory of each device for a run; 0: not known.
	MemoryBytes int64
	// A message of n bytes between two devices takes LatencyUS microseconds plus n / BytesPerS
	// seconds; 0: no time.
	LatencyUS float64
	BytesPerS float64
	// PeakFLOPs is the peak of a device in its data sheet, in floating-point operations a second; 0: not known.
	PeakFLOPs float64
	// Nodes describe hosts whose devices have faster links to each other.
	Nodes Nodes
	// ExpertImbalance is the number of tokens of the busiest rank of an expert group, divided by the group's mean; below 1: all ranks have
	// equally many.
	ExpertImbalance float64
	// Message, if not nil, returns the time of a message from one stage to another in milliseconds, instead of
	// LatencyUS and BytesPerS.
	Message func(from, to int, bytes int64) float64
	// Costs, if not nil, returns the costs measured on a stage's own device, instead of those of one
	// device for all.
	Costs func(stage int) *Costs
	// Group, if not nil, returns the link between a stage's ranks in a group along a dimension, instead of LatencyUS and
	// BytesPerS.
	Group func(stage int, d grid.Dimension) (latencyMS, bytesPerS float64)
	// CarryNS, if not nil, returns the computing time in nanoseconds that a stage's ranks lose for each byte that they send or
	// receive at the same time, because the same processors carry it.
	CarryNS func(stage int) float64

	recorded recordings           // of a search; else nil
	befores  map[int]*plan.Before // by size of the microbatch, of a search; else nil
}

// carryMS is the computing time that is lost while some bytes are sent or received.
func (c Devices) carryMS(stage int, bytes float64) float64 {
	if c.CarryNS == nil || c.Devices <= 1 {
		return 0
	}
	return bytes * c.CarryNS(stage) / 1e6
}

// link is the link between devices of two nodes.
func (c Devices) link() Link { return Link{c.LatencyUS, c.BytesPerS} }

// Prediction is the predicted time and memory of a step.
type Prediction struct {
	StepMS     float64 `json:"step_ms"`
	TokensPerS float64 `json:"tokens_per_s"`
	// MFUPct is the model FLOPs utilization in percent: the model's operations, without recomputation, relative to the devices'
	// peak; 0: the peak is not known.
	MFUPct     float64 `json:"mfu_pct,omitempty"`
	MakespanMS float64 `json:"makespan_ms"` // from the first action's start to the last one's end; steps may overlap
	UpdateMS   float64 `json:"update_ms"`   // what norms and the optimizer add
	BubblePct  float64 `json:"bubble_pct"`
	MessageMS  float64 `json:"message_ms"` // of one between two ranks
	// The time of a rank's collectives in a step, including those that overlap with computing, of the rank
	// with the most: in its tensor group, in its context group, in its expert group, and among the copies of its weights.
	TensorMS  float64 `json:"tensor_ms,omitempty"`
	ContextMS float64 `json:"context_ms,omitempty"`
	ExpertMS  float64 `json:"expert_ms,omitempty"`
	DataMS    float64 `json:"data_ms,omitempty"`
	// Memory, by device: tensors, the copy for a checkpoint, the shadows of other ranks, and what its process shares with others on its
	// node for the tensors that it sends there; nil: there are none.
	TensorBytes     []int64 `json:"tensor_bytes,omitempty"`
	CheckpointBytes []int64 `json:"checkpoint_bytes,omitempty"`
	ShadowBytes     []int64 `json:"shadow_bytes,omitempty"`
	LaneBytes       []int64 `json:"lane_bytes,omitempty"`
	PeakInFlight    []int   `json:"peak_in_flight"` // outputs, by rank
	// Before is a pass before the first step, whose memory is free again then; nil: there is none, or the teacher is missing.
	Before *plan.Before `json:"before,omitempty"`

	Order    *scheduler.Table    `json:"-"`
	Timeline *scheduler.Timeline `json:"-"`

	shared  bool // all ranks share one device
	machine scheduler.Machine
	paired  []pairedActions                             // see Parts; nil: tokens hide behind nothing
	carried func(stage int, a scheduler.Action) float64 // what messages to other stages take of the time of a part
}

// NeedBytes returns the memory that the fullest device needs. If one device has all ranks, that is this machine, which also computes
// Before. Where each rank has its own, Before takes no rank's memory.
func (p *Prediction) NeedBytes() int64 {
	var most int64
	if p.Before != nil && p.shared {
		most = p.Before.Bytes
	}
	for d := range p.TensorBytes {
		most = max(most, p.DeviceBytes(d))
	}
	return most
}

// DeviceBytes returns the memory that a device needs in the steps.
func (p *Prediction) DeviceBytes(device int) int64 {
	bytes := p.TensorBytes[device] + p.CheckpointBytes[device]
	if p.ShadowBytes != nil {
		bytes += p.ShadowBytes[device]
	}
	if p.LaneBytes != nil {
		bytes += p.LaneBytes[device]
	}
	return bytes
}

// room checks that there is a device for each rank, or one for all.
func (d Devices) room(b *plan.Plan) error {
	if n := b.Grid().World(); d.Devices > 1 && n > d.Devices {
		return fmt.Errorf("%w: there are %d ranks but %d devices; use one device for each rank, or a single device for all", ErrDevices, n, d.Devices)
	}
	return nil
}

// Predict simulates a configuration's table with the costs on a cluster. It does not compute memory: see Memory.
func Predict(b *plan.Plan, costs *Costs, cluster Devices) (*Prediction, error) {
	cfg, t := b.Config(), b.Table()
	if err := oneKind(b); err != nil {
		return nil, err
	}
	if err := cluster.room(b); err != nil {
		return nil, err
	}
	cluster = cluster.on(b.Grid())
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
	together, err := recordGroups(b, cluster, ofRank)
	if err != nil {
		return nil, err
	}
	var within []byDimension // by stage
	if together != nil {
		machine.Costs, within, p.paired = inGroups(b, together, machine.Costs)
	}
	weights := b.Trained()
	if cluster.Devices > 1 {
		bytes := b.EdgeBytes()
		p.MessageMS = cluster.link().ms(float64(bytes))
		if err := finite(fmt.Sprintf("a message of %d bytes", bytes), p.MessageMS); err != nil {
			return nil, err
		}
		machine.Link = func(int, int) float64 { return p.MessageMS }
		if cluster.Message != nil {
			machine.Link = func(from, to int) float64 { return cluster.Message(from, to, bytes) }
			p.MessageMS = 0
			for r := range t.NumRanks() - 1 {
				p.MessageMS = max(p.MessageMS, machine.Link(r, r+1))
			}
		}
		own := machine.Costs
		p.carried = cluster.carrying(b, bytes)
		machine.Costs = func(rank int, a scheduler.Action) float64 { return own(rank, a) + p.carried(rank, a) }
		for r, n := range weights {
			ms := ofRank[r].UpdateNS * float64(n) / 1e6
			if together != nil {
				ms = together[r].endMS(b, r, n, ofRank[r], &within[r])
			}
			p.UpdateMS = max(p.UpdateMS, ms)
		}
	} else {
		p.paired = nil // exchanges within one memory take no time
		costs := ofRank[0]
		each := b.Grid().World() / t.NumRanks() // ranks that do the same at a time
		machine.Share = func(running int) float64 { return costs.Share(running * each) }
		replicas := float64(b.Grid().Size(grid.Copies))
		if cfg.Parallel.Zero > 0 {
			replicas = 1
		}
		for _, n := range weights {
			p.UpdateMS += costs.UpdateNS * float64(n) / 1e6 * replicas
		}
	}
	for _, ms := range within {
		p.TensorMS, p.ContextMS = max(p.TensorMS, ms[grid.Tensor]), max(p.ContextMS, ms[grid.Context])
		p.ExpertMS = max(p.ExpertMS, ms[grid.Expert])
		p.DataMS = max(p.DataMS, ms[grid.Copies]+ms[grid.ExpertCopies])
	}
	if p.Timeline, err = machine.Simulate(t); err != nil {
		return nil, err
	}
	p.machine = machine
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
	if cluster.PeakFLOPs > 0 {
		devices := 1
		if cluster.Devices > 1 {
			devices = b.Grid().World()
		}
		p.MFUPct = 100 * p.TokensPerS * b.TokenFLOPs() / (float64(devices) * cluster.PeakFLOPs)
	}
	return p, nil
}

// carrying returns the time to receive the input of an action and to send its output, if the same
// processors do both and compute. Of an action in parts, the first has it.
func (c Devices) carrying(b *plan.Plan, bytes int64) scheduler.Costs {
	if c.CarryNS == nil {
		return func(int, scheduler.Action) float64 { return 0 }
	}
	t := b.Table()
	last := int32(len(b.Layout().Chunks)) - 1
	return func(rank int, a scheduler.Action) (ms float64) {
		if a.Type == scheduler.W || a.Part > 1 {
			return 0
		}
		for _, next := range []int32{a.Chunk - 1, a.Chunk + 1} {
			if next >= 0 && next <= last && t.RankOf(int(next)) != rank {
				ms += c.carryMS(rank, float64(bytes))
			}
		}
		return ms
	}
}

// oneKind rejects a configuration whose ranks compute on devices of several kinds: costs
// are those of one kind.
func oneKind(b *plan.Plan) error {
	for r := range b.Table().NumRanks() {
		if first, kind := b.DeviceKind(0), b.DeviceKind(r); kind != first {
			return b.Config().Errorf("device.ranks",
				"ranks 0 and %d compute on %s and %s, but layer costs are those of one device; plan for each kind separately, without this key", r,
				first, kind)
		}
	}
	return nil
}

// Memory adds the memory of each device.
func (p *Prediction) Memory(b *plan.Plan, cluster Devices) error {
	tensors, err := b.FullestBytes()
	if err != nil {
		return err
	}
	devices := b.Grid().World()
	if p.shared = cluster.Devices <= 1; p.shared {
		devices = 1
	}
	copies, err := b.CopyBytes()
	if err != nil {
		return err
	}
	p.TensorBytes, p.CheckpointBytes = make([]int64, devices), make([]int64, devices)
	for r := range b.Grid().World() {
		p.TensorBytes[r%devices] += tensors[b.Grid().Coordinates(r)[grid.Pipeline]]
		if b.DeviceKind(0) != device.CUDA { // whose memory has no copy
			p.CheckpointBytes[r%devices] += copies[r]
		}
	}
	if shadows := b.ShadowsApart(); !p.shared && shadows.Any() {
		if p.ShadowBytes, err = b.HeldBytes(shadows); err != nil {
			return err
		}
	}
	if n := cluster.Nodes; !p.shared && n.joined() && b.DeviceKind(0) != device.CUDA {
		if p.LaneBytes, err = b.LaneBytes(n.sites(devices), b.ShadowsApart()); err != nil {
			return err
		}
	}
	if b.DeviceKind(0) != device.CUDA { // whose memory the pass does not use
		p.Before, err = cluster.before(b)
	}
	return err
}

// before is the pass before the first step of a plan.
func (c Devices) before(b *plan.Plan) (*plan.Before, error) {
	size := b.Config().Batch.Microbatch
	if known, ok := c.befores[size]; ok {
		return known, nil
	}
	pass, err := b.Before()
	if b.MissingTeacher(err) { // of a run that may resume without it
		err = nil
	}
	if err == nil && c.befores != nil {
		c.befores[size] = pass
	}
	return pass, err
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// actionCosts are the sums over a chunk's layers. With recomputation, a backward pass also has the cost of the
// forward pass.
func actionCosts(b *plan.Plan, batches []BatchCosts) scheduler.Costs {
	layout := b.Layout()
	byChunk := make([][scheduler.B + 1]float64, len(layout.Chunks))
	again := make([]float64, len(layout.Chunks)) // of the layers that recompute
	layer := 0
	var apart [scheduler.B + 1]float64
	for v, symbols := range layout.Chunks {
		of := b.LayerCosts(batches[b.Table().RankOf(v)].of)
		for _, s := range symbols {
			for t := scheduler.F; t <= scheduler.B; t++ {
				byChunk[v][t] += of(layer, t)
			}
			if (s == scheduler.SymbolLayer || s == scheduler.SymbolMTP) && b.Model().GoesBack(layer) {
				again[v] += of(layer, scheduler.F)
			}
			if s == scheduler.SymbolLoss {
				apart = headApart(byChunk[v], batches[b.Table().RankOf(v)], b.Model().TrainedShare(layer))
			}
			layer++
		}
	}
	recomputes, headLater := b.Recomputes(), b.HeadLater()
	return func(rank int, a scheduler.Action) float64 {
		ms := byChunk[a.Chunk][a.Type]
		if int(a.Chunk) == len(byChunk)-1 && headLater(b.Table().Microbatches, int(a.Microbatch)) {
			ms = apart[a.Type]
		}
		if (a.Type == scheduler.I || a.Type == scheduler.B) && recomputes(rank, int(a.Microbatch)) {
			ms += again[a.Chunk]
		}
		return ms
	}
}

// batchFor returns the costs for a plan's size of microbatch, and checks that they have all its layers.
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
			return batch, fmt.Errorf("%w: microbatch %d: layer m is missing, but the model has %d of them; measure the costs again", ErrCosts, batch.Microbatch,
				b.Model().Config.MTPLayers)
		}
	}
	return batch, nil
}

// headApart returns the costs of the last chunk if the head's weight gradient is deferred.
// Otherwise its forward pass computes it.
func headApart(last [scheduler.B + 1]float64, batch BatchCosts, trained float64) (apart [scheduler.B + 1]float64) {
	product := batch.of(scheduler.SymbolLoss, scheduler.F) * plan.HeadShare * trained
	weight := batch.of(scheduler.SymbolLoss, scheduler.W) * trained
	apart[scheduler.F] = last[scheduler.F] - product
	apart[scheduler.W] = product + weight
	apart[scheduler.I] = last[scheduler.B] - weight
	apart[scheduler.B] = last[scheduler.B] + product
	return apart
}
