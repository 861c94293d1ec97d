package forecast

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops"
)

// What of a data sheet's speeds programs reach, as it was measured on an H200 (BENCHMARKS.md, "On a GPU"): attention and
// its gradient of 16 sequences of GPT-2's layer alone (132 and 423 µs), what moves numbers by AdamW's and the norms' kernels,
// and products by what remains of a whole step of GPT-2 124M, 35.1 ms. Larger products run nearer to the peak,
// so that an estimate of a large model is rather too slow.
const (
	productShare       = 0.59
	attentionShare     = 0.20
	attentionGradShare = 0.15
	memoryShare        = 0.85
)

// Estimate computes the costs of a configuration's layers on a GPU from their shapes and the GPU's data
// sheet, without running them. The time of an operation is the time of the memory to move its operands once, or of the
// units to multiply, whichever is longer, plus launchTime. It assumes the fractions of the data sheet's speeds that were
// measured on one GPU.
func Estimate(b *plan.Plan, microbatches []int, g gpus.GPU) (*Costs, error) {
	return estimate(b, microbatches, g, mostDecoders)
}

// estimate is Estimate from some number of the decoder layers.
func estimate(b *plan.Plan, microbatches []int, g gpus.GPU, decoders int) (*Costs, error) {
	cfg := b.Config()
	c := &Costs{Kernels: "estimated " + g.Name, DType: cfg.Device.DType, Threads: 1, Context: cfg.Model.Context,
		Hidden: b.Model().Config.Hidden,
		Shares: []float64{1}, AddNS: 3e9 / (memoryShare * g.BytesPerS)} // two are read for one that is written
	model, err := trainedModel(b)
	if err != nil {
		return nil, err
	}
	whole := &sample{model: model, decoders: decoders, shrunk: 1}
	options := b.StageOptions(0)
	withoutFields(&options)
	for _, sequences := range microbatches {
		e := &estimator{DryStream: tensorops.NewDryStream(), gpu: g}
		m, err := newMeter(whole, options, e, sequences, false)
		if err != nil {
			return nil, err
		}
		m.now = e.now
		for _, split := range []bool{false, true} {
			if err = m.pass(split); err != nil {
				break
			}
		}
		m.close()
		if err != nil {
			return nil, fmt.Errorf("estimate microbatches of %d sequences: %w", sequences, err)
		}
		c.Batches = append(c.Batches, m.costs(median))
		c.UpdateNS = median(m.updates)
	}
	return c, nil
}

// estimator is a stream that runs nothing and advances a clock by the estimated time of each operation.
type estimator struct {
	*tensorops.DryStream
	gpu   gpus.GPU
	taken time.Duration
}

func (e *estimator) now() time.Time { return time.Time{}.Add(e.taken) }

// Submit implements tensorops.Stream.
func (e *estimator) Submit(l *tensorops.List, done func(error)) {
	ops := l.Ops()
	for i := range ops {
		e.taken += e.time(&ops[i])
		if i == 0 || ops[i].Kind != ops[i-1].Kind || ops[i].Kind != tensorops.KindSquaredNorm && ops[i].Kind != tensorops.KindAdamW {
			e.taken += launchTime // else the two are one launch
		}
	}
	e.DryStream.Submit(l, done)
}

// launchTime is the time between the end of one operation and the start of the next.
const launchTime = 2 * time.Microsecond

// time is the time of an operation after its start.
func (e *estimator) time(o *tensorops.Op) time.Duration {
	switch o.Kind {
	case tensorops.KindUpload, tensorops.KindFetch, tensorops.KindAwait: // of ids and sums
		return 0
	}
	peak := e.gpu.FP32FLOPs
	if o.Has(tensorops.FlagBF16) {
		peak = e.gpu.BF16FLOPs
	}
	switch o.Kind {
	case tensorops.KindAttention:
		peak *= attentionShare
	case tensorops.KindAttentionGrad:
		peak *= attentionGradShare
	default:
		peak *= productShare
	}
	seconds := max(float64(bytesOf(o))/(memoryShare*e.gpu.BytesPerS), flopsOf(o)/peak)
	return time.Duration(seconds * float64(time.Second))
}

// bytesOf is the least number of bytes that an operation reads and writes.
func bytesOf(o *tensorops.Op) (bytes int64) {
	size := func(t tensorops.Tensor) int64 {
		if !t.Valid() {
			return 0
		}
		return int64(t.Len()) * int64(t.DType().Size())
	}
	// A lookup reads a row for each id.
	switch o.Kind {
	case tensorops.KindEmbed:
		a := o.Embed()
		return 2*size(a.Out) + size(a.IDs)
	case tensorops.KindEmbedGrad:
		a := o.EmbedGrad()
		return 3*size(a.DY) + size(a.IDs)
	}
	for _, t := range o.T {
		bytes += size(t)
	}
	// An operand that is changed is read and written.
	switch o.Kind {
	case tensorops.KindMatMul:
		if o.Has(tensorops.FlagAccumulate) {
			bytes += size(o.T[0])
		}
	case tensorops.KindRoPE:
		bytes += size(o.T[0])
	case tensorops.KindAdamW:
		bytes += size(o.T[0]) + size(o.T[1]) + size(o.T[2])
		if o.Has(tensorops.FlagClear) {
			bytes += size(o.T[3])
		}
	case tensorops.KindSGD:
		bytes += size(o.T[0]) + size(o.T[1])
	}
	return bytes
}

// flopsOf is the number of floating-point operations of an operation's products. Attention has two products, its gradient five.
func flopsOf(o *tensorops.Op) float64 {
	switch o.Kind {
	case tensorops.KindMatMul:
		a := o.MatMul()
		depth := a.A.Cols()
		if a.TransA {
			depth = a.A.Rows()
		}
		return 2 * float64(a.C.Rows()) * float64(a.C.Cols()) * float64(depth)
	case tensorops.KindGroupedMatMul:
		a := o.GroupedMatMul()
		return 2 * float64(a.C.Rows()) * float64(a.C.Cols()) * float64(a.A.Cols())
	case tensorops.KindGroupedWeightGrad:
		a := o.GroupedWeightGrad()
		return 2 * float64(a.X.Rows()) * float64(a.X.Cols()) * float64(a.DY.Cols())
	case tensorops.KindAttention:
		return 2 * pairFLOPs(o.Attention().AttentionSizes)
	case tensorops.KindAttentionGrad:
		return 5 * pairFLOPs(o.AttentionGrad().AttentionSizes)
	}
	return 0
}

// pairFLOPs is the number for one product over the channels of each pair of a query and a key that it sees.
func pairFLOPs(a tensorops.AttentionSizes) float64 {
	pairs := 0.0
	for i := range a.Queries {
		first, end := a.Seen(i)
		pairs += float64(end - first)
	}
	return 2 * float64(a.Width) * float64(a.Heads) * float64(a.Batch) * pairs
}
