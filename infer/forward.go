package infer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// forward runs a model forward on the data once, as one validation on the actors of training, microbatch sequences at a time.
// It calls emit, which may be nil, with the outputs of each microbatch in order. An error of emit ends the pass.
func forward(ctx context.Context, m *trained.Model, src corpus.Feed, microbatch int, emit func(Prediction) error) (loss float64,
	metrics map[string]float64, err error) {
	spec, err := forwardSpec(m, src, microbatch)
	if err != nil {
		return loss, nil, err
	}
	spec.Collect = emit != nil
	ctx, cancel := context.WithCancel(ctx) // emit may cancel, too
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
				if failed = emit(Prediction{e.Microbatch * microbatch, e.Outputs}); failed != nil {
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

// forwardSpec describes a run with no steps and one validation.
func forwardSpec(m *trained.Model, src corpus.Feed, microbatch int) (*actors.Spec, error) {
	train, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1})
	if err != nil {
		return nil, err
	}
	eval, err := scheduler.Generate(scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: (src.Windows + microbatch - 1) / microbatch,
		ForwardOnly: true})
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	_, packed := src.Source.(actors.PackedSource)
	return &actors.Spec{
		Packed: packed, Run: id, Device: m.Device, Routes: []stages.Route{{}},
		Build: func(_ int, s tensorops.Stream) (actors.Compute, error) { return m.Stage(s) },
		Table: train, EvalTable: eval, Data: src.Source, MicrobatchSize: microbatch, Context: src.Context, Sequences: microbatch,
	}, nil
}

// checkFinite returns an error if the loss is not finite.
func checkFinite(m *trained.Model, loss float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("%w: the loss is %g: %s", ErrNotFinite, loss, m.Suspicion())
	}
	return nil
}
