package infer

import (
	"context"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/forward"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// forwardOn runs a model forward on the data once, microbatch sequences at a time. It calls emit, which may be nil, with the outputs of
// each microbatch in order. An error of emit ends the pass.
func forwardOn(ctx context.Context, m *trained.Model, src corpus.Feed, microbatch int, emit func(Prediction) error) (loss float64,
	metrics map[string]float64, err error) {
	p := forward.Pass{Device: m.Device, Data: src.Source, Context: src.Context, Microbatch: microbatch,
		Build: func(s tensorops.Stream) (actors.Compute, error) { return m.Stage(s) }}
	if emit != nil {
		p.Emit = func(first int, outputs []stages.Output) error { return emit(Prediction{first, outputs}) }
	}
	return p.Run(ctx)
}

// checkFinite returns an error if the loss is not finite.
func checkFinite(m *trained.Model, loss float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("%w: the loss is %g: %s", ErrNotFinite, loss, m.Suspicion())
	}
	return nil
}
