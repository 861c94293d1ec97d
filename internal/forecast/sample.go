package forecast

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// ErrMeasure: not even a small part of the model fits the memory here.
var ErrMeasure = errors.New("cannot measure the layers")

// sample is the part of a model that is measured, to save memory and time.
type sample struct {
	model    *stages.Model
	decoders int // layers, each as a chunk of its own
	shrunk   int // how many times narrower than the model
	runners  int // the most layers that run at the same time
}

const (
	// mostDecoders is the number of decoder layers that are measured: enough that their
	// weights and activations are in memory and not in a cache, as in the whole model.
	mostDecoders = 6
	// mostFLOPs is the limit of a microbatch's forward and backward pass through the measured layers: a minute on a
	// small machine, with the repetitions.
	mostFLOPs = 3e12
	// mostShrunk is the largest factor by which layers are made narrower.
	mostShrunk = 64
	// freeShare is the fraction of the free memory that a measurement may use.
	freeShare = 0.5
)

// sampleOf chooses the part of a model to measure on a device: fewer layers of each kind if all would need more than half of the free
// memory or too much time, then narrower layers, whose times are scaled. narrower: narrower layers are allowed.
func sampleOf(b *plan.Plan, options stages.Options, dev device.Device, sequences int, narrower bool) (*sample, error) {
	config := b.Model().Config
	room := int64(freeShare * float64(device.FreeBytes(dev)))
	for s := (&sample{decoders: mostDecoders, shrunk: 1}); ; {
		var err error
		if s.model, err = stages.NewModel(config); err != nil {
			return nil, err
		}
		bytes, err := s.bytes(options, sequences)
		if err != nil && !errors.Is(err, tensorops.ErrOutOfMemory) {
			return nil, err
		}
		fits := err == nil && (room <= 0 || bytes <= room)
		if s.runners = dev.Threads(); room > 0 { // each takes less than the layers together
			s.runners = int(max(1, min(int64(s.runners), room*int64(s.decoders)/max(bytes, 1))))
		}
		if fits && s.flops(sequences) <= mostFLOPs {
			return s, nil
		}
		if least := min(len(kindsOf(s.model)), mostDecoders); s.decoders > least {
			s.decoders = max(least, s.decoders/2)
			continue
		}
		next, ok := narrowed(config)
		if ok = ok && narrower && s.shrunk < mostShrunk; !ok {
			if !fits && s.decoders > 1 { // without the rarest kinds
				s.decoders /= 2
				continue
			}
			if !fits {
				return nil,
					fmt.Errorf("%w: one layer with embedding and head needs %s for microbatches of %d, but half of the free memory is %s; use --device to estimate a GPU, or --layer-costs for costs measured elsewhere",
						ErrMeasure, plan.GiB(float64(bytes)), sequences, plan.GiB(float64(room)))
			}
			return s, nil
		}
		config, s.decoders, s.shrunk = next, mostDecoders, 2*s.shrunk
	}
}

// narrowed is a model of half the width, heads and vocabulary.
func narrowed(c stages.Config) (stages.Config, bool) {
	if c.Hidden%2 != 0 || c.FFN%2 != 0 || c.Heads%2 != 0 || c.KVHeads%2 != 0 && c.KVHeads > 1 || c.Hidden < 256 {
		return c, false
	}
	if c.FullKVHeads > 1 && c.FullKVHeads%2 != 0 {
		return c, false
	}
	c.FullKVHeads, c.LayerInput = (c.FullKVHeads+1)/2, (c.LayerInput+1)/2
	latent := c.Latent != (stages.LatentConfig{}) // its heads keep their widths
	if c.HeadDim == 0 && !latent {
		c.HeadDim = c.Hidden / c.Heads
	}
	c.Hidden, c.FFN, c.Heads, c.KVHeads, c.Vocab = c.Hidden/2, c.FFN/2, c.Heads/2, max(1, c.KVHeads/2), max(2, c.Vocab/2)
	if x := &c.Experts; x.Width > 1 {
		if x.SharedWidth%x.Width == 0 { // several experts' width
			x.SharedWidth = x.SharedWidth / x.Width * (x.Width / 2)
		} else {
			x.SharedWidth = max(1, x.SharedWidth/2)
		}
		x.Width /= 2
	}
	if latent {
		c.Latent.KVRank, c.Latent.QRank = max(1, c.Latent.KVRank/2), (c.Latent.QRank+1)/2
	}
	if c.HeadDim*c.Heads == c.Hidden { // what it would be anyway
		c.HeadDim = 0
	}
	return c, true
}

// bytes is what measuring takes, found by recording a step without executing it.
func (s *sample) bytes(options stages.Options, sequences int) (int64, error) {
	dry := tensorops.NewDryStream()
	m, err := newMeter(s, options, dry, sequences, false)
	if err != nil {
		return 0, err
	}
	defer m.close()
	for _, split := range []bool{false, true} {
		if err := m.pass(split); err != nil {
			return 0, err
		}
	}
	return dry.Memory().Taken, nil
}

// flops are those of a microbatch there and back.
func (s *sample) flops(sequences int) float64 {
	c := s.model.Config
	e, t, l := c.FLOPs(c.Context)
	return 3 * float64(sequences*c.Context) * (e + float64(min(s.decoders, c.Layers))*t + l + float64(c.MTPLayers)*c.MTPFLOPs(c.Context))
}

// whole are the costs of a model's own layers, from those of narrower ones: by the ratio of their operations.
func (s *sample) whole(b *plan.Plan, batch BatchCosts) BatchCosts {
	if s.shrunk == 1 {
		return batch
	}
	own, small := b.Model().Config, s.model.Config
	e, t, l := own.FLOPs(own.Context)
	se, st, sl := small.FLOPs(own.Context)
	by := map[scheduler.Symbol]float64{scheduler.SymbolEmbedding: e / se, scheduler.SymbolLayer: t / st, scheduler.SymbolLoss: l / sl}
	if own.MTPLayers > 0 {
		by[scheduler.SymbolMTP] = own.MTPFLOPs(own.Context) / small.MTPFLOPs(own.Context)
	}
	out := BatchCosts{Microbatch: batch.Microbatch, Layers: make(map[string]LayerCost)}
	for symbol, factor := range by {
		c, there := batch.Layers[string(rune(symbol))]
		if there {
			out.Layers[string(rune(symbol))] = LayerCost{factor * c.ForwardMS, factor * c.InputGradMS, factor * c.WeightGradMS,
				factor * c.BackwardMS}
		}
	}
	return out
}
