package forecast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Measure measures the costs of a configuration's layers on this machine for some sizes of
// microbatch, each for about a number of seconds. progress, if not nil, is called with what is
// being measured.
func Measure(ctx context.Context, b *plan.Plan, microbatches []int, seconds float64, progress func(string)) (*Costs, error) {
	return measure(ctx, b, microbatches, seconds, progress, false)
}

// MeasureRank is Measure for a rank's parts of the layers, if all stages have groups of the same
// sizes. Narrow products, and operations that each rank does completely, take longer than their share of whole layers.
func MeasureRank(ctx context.Context, b *plan.Plan, microbatches []int, seconds float64) (*Costs, error) {
	for stage := range b.Table().NumRanks() {
		if b.Grid().TensorSize(stage) != b.Grid().TensorSize(0) {
			return Measure(ctx, b, microbatches, seconds, nil)
		}
	}
	return measure(ctx, b, microbatches, seconds, nil, true)
}

func measure(ctx context.Context, b *plan.Plan, microbatches []int, seconds float64, progress func(string), ofRank bool) (*Costs, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if err := oneKind(b); err != nil {
		return nil, err
	}
	dev, err := device.Open(b.Config())
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	cfg := b.Config()
	c := &Costs{Kernels: dev.Path(), DType: cfg.Device.DType, Threads: dev.Threads(), Context: cfg.Model.Context,
		Hidden: b.Model().Config.Hidden}
	options, typical := b.StageOptions(0), median
	if ofRank {
		options = b.LayerOptions(0, loneGroup)
		c.Tensor, c.ContextRanks, c.Sequence = b.Grid().TensorSize(0), b.Grid().Size(grid.Context), cfg.Parallel.Sequence
		ranks := b.Grid().TensorSize(0) * b.Grid().Size(grid.Context)
		typical = func(v []float64) float64 { return slowestOf(ranks, v) }
	}
	withoutFields(&options)
	var updates []float64
	var first *sample
	for _, sequences := range microbatches {
		progress(fmt.Sprintf("layers, with microbatches of %d", sequences))
		of, err := sampleOf(b, options, dev, sequences, !ofRank)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = of
		}
		m, err := newMeter(of, options, dev.NewStream("planner"), sequences, true)
		if err != nil {
			return nil, err
		}
		err = m.sample(ctx, seconds)
		m.close()
		if err != nil {
			return nil, fmt.Errorf("measure microbatches of %d sequences: %w", sequences, err)
		}
		c.Batches = append(c.Batches, of.whole(b, m.costs(typical)))
		c.Shrunk = max(c.Shrunk, of.shrunk)
		updates = append(updates, median(m.updates))
	}
	if c.Shrunk == 1 {
		c.Shrunk = 0
	}
	c.UpdateNS = slices.Min(updates)
	if c.AddNS, err = measureAdd(dev); err != nil {
		return nil, fmt.Errorf("measure additions: %w", err)
	}
	progress("actions that run at the same time")
	c.Shares, err = measureShares(ctx, b, first, dev, microbatches[0])
	return c, err
}

// withoutFields replaces losses that read more than tokens: a measured microbatch has neither what a teacher nor what a reference model
// says. A loss of preferences that needs no reference model computes as much.
func withoutFields(o *stages.Options) {
	o.Distill = nil
	if o.Preference.NeedsReference() {
		own := *o.Preference
		own.Loss = stages.ORPO
		o.Preference = &own
	}
}

// meter runs some of a model's layers, each as its own chunk, and times their
// passes.
type meter struct {
	stream     tensorops.Stream
	now        func() time.Time
	stage      *stages.Stage
	chunks     []meterChunk
	parts      []float64 // by kind of decoder layer: its operations, in those of a mean layer
	microbatch stages.Microbatch
	step       int
	weights    int64
	updates    []float64 // ns for one weight
}

type meterChunk struct {
	symbol  scheduler.Symbol
	kind    int                        // of a decoder layer, else 0
	layers  float64                    // how many times as many operations it has as a layer of its symbol has on average
	in, out int                        // widths of its edges
	times   [scheduler.B + 1][]float64 // by pass, ms of a mean layer
}

// newMeter returns a meter on a stream. Without loading, the weights are not set.
func newMeter(sample *sample, options stages.Options, stream tensorops.Stream, sequences int, load bool) (*meter, error) {
	m := &meter{stream: stream, now: time.Now}
	model := sample.model
	var err error
	var specs []stages.ChunkSpec
	symbols, measures := model.Symbols(), sample.measures()
	share := sharesOfSymbols(model)
	for i := 0; i < len(symbols); {
		s, last := scheduler.Symbol(symbols[i]), i+1
		for s == scheduler.SymbolMTP && scheduler.Symbol(symbols[last]) == s { // they stand in one chunk
			last++
		}
		kind, measured := measures[i]
		if measured || s != scheduler.SymbolLayer {
			specs = append(specs, stages.ChunkSpec{Chunk: len(specs), First: i, Last: last})
			m.chunks = append(m.chunks, meterChunk{symbol: s, kind: kind, layers: sum(share[i:last]), in: model.EdgeWidth(i),
				out: model.EdgeWidth(last)})
		}
		i = last
	}
	for _, layers := range kindsOf(model) {
		m.parts = append(m.parts, share[layers[0]]*float64(len(layers)))
	}
	if m.stage, err = stages.NewStage(model, m.stream, specs, options); err == nil && load {
		err = m.stage.Load(stages.InitWeights(1), false)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	if m.weights = model.ParametersOf(specs); options.Tensor.Group != nil {
		m.weights /= int64(options.Tensor.Group.Size()) // except for the few that each has
	}
	m.microbatch = microbatch(model.Config, sequences)
	return m, nil
}

// sharesOfSymbols are the operations of each layer as a share of the mean of its symbol. Decoder layers may differ, and few are
// measured, but costs are of the mean of all, of which plan.Plan.LayerCosts gives each layer its share.
func sharesOfSymbols(m *stages.Model) []float64 {
	shares, symbols := m.FLOPs(m.Config.Context), m.Symbols()
	_, mean, _ := m.Config.FLOPs(m.Config.Context)
	for i := range shares {
		if symbols[i] == stages.SymbolDecoder {
			shares[i] /= mean
		} else {
			shares[i] = 1
		}
	}
	return shares
}

// trainedModel is a plan's model with nothing frozen: costs are of layers that are trained, and
// plan.Plan.LayerCosts leaves out what others don't do.
func trainedModel(b *plan.Plan) (*stages.Model, error) { return stages.NewModel(b.Model().Config) }

// microbatch returns a microbatch of random tokens.
func microbatch(c stages.Config, sequences int) stages.Microbatch {
	n := sequences * c.Context
	ids := make([]int32, 2*n)
	key := rng.NewKey(1, rng.StringStream("planner tokens"))
	for i := range ids {
		ids[i] = int32(rng.Intn(key, 0, uint64(i), uint64(c.Vocab)))
	}
	return stages.Microbatch{Step: 1, Sequences: sequences, Positions: c.Context, Tokens: ids[:n], Targets: ids[n:], Train: true}
}

func (m *meter) close() { tensorops.CloseStream(m.stream) }

// leastRounds is the least number of measurements of each pass.
const leastRounds = 2

// sample times rounds: a step with backwards in one piece, one with the two gradients
// apart, and their updates. The first round, which finds memory not yet in place, does
// not count.
func (m *meter) sample(ctx context.Context, seconds float64) error {
	var began time.Time
	for round := 0; round <= leastRounds || time.Since(began).Seconds() < seconds; round++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, split := range []bool{false, true} {
			if err := m.pass(split); err != nil {
				return err
			}
		}
		if round == 0 {
			began = time.Now()
			m.updates = nil
			for i := range m.chunks {
				m.chunks[i].times = [scheduler.B + 1][]float64{}
			}
		}
	}
	return nil
}

// pass runs a microbatch forward and backward through all chunks, and updates the weights.
func (m *meter) pass(split bool) error {
	m.microbatch.Index = m.step
	var x, dy tensorops.Tensor
	var err error
	for v := range m.chunks {
		if x, err = m.resized(x, m.chunks[v].in); err == nil {
			x, err = m.time(v, scheduler.F, x)
		}
		if err != nil {
			return err
		}
	}
	backward := scheduler.B
	if split {
		backward = scheduler.I
	}
	for v := len(m.chunks) - 1; v >= 0; v-- {
		if dy, err = m.resized(dy, m.chunks[v].out); err == nil {
			dy, err = m.time(v, backward, dy)
		}
		if err != nil {
			return err
		}
	}
	for v := len(m.chunks) - 1; v >= 0 && split; v-- {
		if _, err := m.time(v, scheduler.W); err != nil {
			return err
		}
	}
	m.step++
	began := m.now()
	l := m.stream.NewList()
	m.stage.GradNorms(l)
	if err = tensorops.Run(m.stream, l); err == nil {
		l = m.stream.NewList()
		m.stage.Apply(l, stages.Update{Count: m.step, LR: 1e-5, GradScale: 1e-3})
		err = tensorops.Run(m.stream, l)
	}
	m.updates = append(m.updates, float64(m.now().Sub(began))/float64(m.weights))
	return err
}

// resized returns a tensor between chunks with another number of channels, where layers between the two are left out.
func (m *meter) resized(t tensorops.Tensor, width int) (tensorops.Tensor, error) {
	if !t.Valid() || t.Cols() == width {
		return t, nil
	}
	l := m.stream.NewList()
	to := l.Alloc(t.DType(), t.Dim(0), t.Dim(1), width)
	l.Fill(to, 0)
	n := min(width, t.Cols())
	l.Copy(to.Columns(0, n), t.Columns(0, n))
	l.Free(t)
	return to, tensorops.Run(m.stream, l)
}

// time runs an action and returns its output.
func (m *meter) time(v int, t scheduler.Type, in ...tensorops.Tensor) (tensorops.Tensor, error) {
	began := m.now()
	l := m.stream.NewList()
	a := scheduler.Action{Type: t, Chunk: int32(v), Microbatch: int32(m.step)}
	out := stages.Only(stages.Act(l, m.stage, a, &m.microbatch, in...))
	err := tensorops.Run(m.stream, l)
	c := &m.chunks[v]
	c.times[t] = append(c.times[t], float64(m.now().Sub(began))/float64(time.Millisecond)/c.layers)
	return out, err
}

// costs are made of the times of all rounds, and of all layers of a kind: each is what typical says of them. Those of decoder layers are
// the mean of the kinds, of which each has its part of the operations.
func (m *meter) costs(typical func(times []float64) float64) BatchCosts {
	type kind struct {
		symbol scheduler.Symbol
		kind   int
	}
	times, all := make(map[kind]*[scheduler.B + 1][]float64), make(map[scheduler.Symbol]float64)
	var kinds []kind
	for _, c := range m.chunks {
		k := kind{c.symbol, c.kind}
		if times[k] == nil {
			times[k] = new([scheduler.B + 1][]float64)
			kinds = append(kinds, k)
			all[k.symbol] += m.part(k.symbol, k.kind)
		}
		for t := range c.times {
			times[k][t] = append(times[k][t], c.times[t]...)
		}
	}
	out := BatchCosts{Microbatch: m.microbatch.Sequences, Layers: make(map[string]LayerCost)}
	for _, k := range kinds {
		t, part := times[k], m.part(k.symbol, k.kind)/all[k.symbol]
		input, weight, both := typical(t[scheduler.I]), typical(t[scheduler.W]), typical(t[scheduler.B])
		// A backward has the operations of both gradients. That they differ in time is
		// chance, from which no schedule shall gain.
		backward := part * (input + weight + both) / 2
		cost := out.Layers[string(rune(k.symbol))]
		cost.ForwardMS += part * typical(t[scheduler.F])
		cost.InputGradMS += backward * input / (input + weight)
		cost.WeightGradMS += backward * weight / (input + weight)
		cost.BackwardMS += backward
		out.Layers[string(rune(k.symbol))] = cost
	}
	return out
}

// part returns the operations of all layers of a kind, in those of a mean layer.
func (m *meter) part(symbol scheduler.Symbol, kind int) float64 {
	if symbol == scheduler.SymbolLayer {
		return m.parts[kind]
	}
	return 1
}

// addBytes is how much is added at a time to measure what a byte takes: as much as a layer's
// activations, which are not all in a cache.
const addBytes = 8 << 20

// measureAdd measures the time to add a byte, in nanoseconds.
func measureAdd(dev tensorops.Device) (float64, error) {
	stream := dev.NewStream("planner")
	defer tensorops.CloseStream(stream)
	var times []float64
	for round := range 6 {
		l := stream.NewList()
		sum, x := l.Alloc(tensorops.Float32, addBytes/4), l.Alloc(tensorops.Float32, addBytes/4)
		l.Fill(sum, 0)
		l.Fill(x, 1)
		if err := tensorops.Run(stream, l); err != nil {
			return 0, err
		}
		l = stream.NewList()
		l.Add(sum, sum, x)
		began := time.Now()
		err := tensorops.Run(stream, l)
		took := float64(time.Since(began)) / addBytes
		l = stream.NewList()
		l.Free(sum)
		l.Free(x)
		if err = errors.Join(err, tensorops.Run(stream, l)); err != nil {
			return 0, err
		}
		if round > 0 { // the first finds memory not yet in place
			times = append(times, took)
		}
	}
	return median(times), nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// slowestOf is what the slowest of n ranks takes, on average, if each takes any of some times: those that work in groups wait
// for it. Of one it is the mean: a rank's passes add up.
func slowestOf(n int, times []float64) (mean float64) {
	all := float64(len(times))
	for i, t := range slices.Sorted(slices.Values(times)) {
		mean += t * (math.Pow(float64(i+1)/all, float64(n)) - math.Pow(float64(i)/all, float64(n)))
	}
	return mean
}
