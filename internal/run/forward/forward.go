// Package forward runs a model forward on data once, as one validation on the actors of training: for evaluations, predictions, and the
// log-probabilities of a reference model.
//
// It must not know where the weights and the data are from, nor what the outputs are used for.
package forward

import (
	"context"
	"errors"
	"math"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// Pass is a forward pass over all windows of some data.
type Pass struct {
	Device     tensorops.Device
	Build      func(tensorops.Stream) (actors.Compute, error) // the whole model, with its weights
	Data       actors.Source
	Context    int // positions of a window, at most
	Microbatch int // windows at a time
	// Emit, if not nil, is called with the outputs of each microbatch in order, and the index of its first window. An error ends the
	// pass.
	Emit func(first int, outputs []stages.Output) error
}

// Run computes the pass, and returns the loss and the metrics of all windows.
func (p Pass) Run(ctx context.Context) (loss float64, metrics map[string]float64, err error) {
	spec, err := p.spec()
	if err != nil {
		return loss, nil, err
	}
	spec.Collect = p.Emit != nil
	ctx, cancel := context.WithCancel(ctx) // Emit may cancel, too
	defer cancel()
	loss = math.NaN()
	var failed error
	spec.OnEvent = func(e event.Event) {
		switch e := e.(type) {
		case event.StepEvent:
			if e.ValLoss != nil {
				loss, metrics = *e.ValLoss, e.ValMetrics
			}
		case actors.OutputEvent:
			if failed == nil {
				if failed = p.Emit(e.Microbatch*p.Microbatch, e.Outputs); failed != nil {
					cancel()
				}
			}
		}
	}
	run, err := actors.Start(*spec)
	if err != nil {
		return loss, nil, err
	}
	stop := context.AfterFunc(ctx, run.Kill)
	out := run.Wait()
	stop()
	if failed != nil {
		return loss, nil, failed
	}
	return loss, metrics, errors.Join(ctx.Err(), out.Err)
}

// spec describes a run with no steps and one validation.
func (p Pass) spec() (*actors.Spec, error) {
	train, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1})
	if err != nil {
		return nil, err
	}
	eval, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, ForwardOnly: true,
		Microbatches: actors.EvalMicrobatches(p.Microbatch, p.Data, nil)})
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	_, packed := p.Data.(actors.PackedSource)
	return &actors.Spec{
		Packed: packed, Run: id, Device: p.Device, Routes: []stages.Route{{}},
		Build: func(_ int, s tensorops.Stream) (actors.Compute, error) { return p.Build(s) },
		Table: train, EvalTable: eval, Data: p.Data, MicrobatchSize: p.Microbatch, Context: p.Context, Sequences: p.Microbatch,
	}, nil
}
