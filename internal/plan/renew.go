package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// An attempt that loses a process can be renewed: the other ranks keep their weights and optimizer state in memory, and each lost rank
// gets its own from another process: from a rank with the same ones, or from its shadow.

// ErrNoHolder: the ranks of an attempt can't be renewed after some are lost.
var ErrNoHolder = errors.New("no other process has all of their state")

// CheckRenewal returns why no attempt of the plan can be renewed; nil: it can be, if the right ranks survive.
func (p *Plan) CheckRenewal() error {
	switch {
	case p.zero() > 0:
		return fmt.Errorf("%w: each replica has only a part of the optimizer state (parallel.zero = %d)", ErrNoHolder, p.cfg.Parallel.Zero)
	case slices.Max(p.cfg.Parallel.Tensor) > 1 && p.cfg.Muon(): // those that are left could not end an update that has begun
		return fmt.Errorf("%w: the ranks of a tensor group make matrices orthogonal together (name = \"muon\" of [optimizer] or a "+
			"group, parallel.tensor = %d)", ErrNoHolder, slices.Max(p.cfg.Parallel.Tensor))
	case Optimizer(p.cfg).State != tensorops.Float32:
		return fmt.Errorf("%w: the optimizer state is stored in %s (optimizer.state_dtype)", ErrNoHolder, p.cfg.Optimizer.StateDType)
	case !p.model.Config.Language():
		return fmt.Errorf("%w: the model has the program's own layers", ErrNoHolder)
	}
	if stage, found := p.gpuStage(); found {
		return fmt.Errorf("%w: stage %d is on a GPU", ErrNoHolder, stage)
	}
	return nil
}

// Twins returns the ranks with the same weights and optimizer state as a rank, and the rank itself, in ascending order. Those of an expert
// group have different experts.
func (p *Plan) Twins(rank int) []int { return p.grid.Twins(rank) }

// Replicated reports whether each rank has others with the same weights.
func (p *Plan) Replicated() bool { return p.grid.Replicated() }

// Freezes reports whether some weights are not trained. A lost rank reads them again from where the run has them: from the checkpoint
// that the attempt began with, or else from the seed.
func (p *Plan) Freezes() bool { return p.model.Trained() != p.model.Parameters() }

// Frozen returns the weights that are not trained and that checkpoints have, from a source of all weights; nil: there are none. Those of an
// adapter's base are stored already.
func (p *Plan) Frozen(load stages.Source) (*actors.FrozenWeights, error) {
	if !p.Freezes() {
		return nil, nil
	}
	types, of := make(map[int]tensorops.DType), make(map[int]int)
	for stage := range p.table.NumRanks() {
		st, err := stages.NewStage(p.model, tensorops.NewDryStream(), p.chunks[stage], p.dryOptions(stage, place{}))
		if err != nil {
			return nil, fmt.Errorf("stage %d: %w", stage, err)
		}
		for index, dtype := range st.FrozenTypes() {
			types[index], of[index] = dtype, stage
		}
		if err := st.Close(); err != nil {
			return nil, fmt.Errorf("stage %d: %w", stage, err)
		}
	}
	if len(types) == 0 {
		return nil, nil
	}
	return &actors.FrozenWeights{StoredWeights: actors.StoredWeights{Params: p.model.Params, Source: load}, Types: types, Stages: of}, nil
}

// Source says where lost ranks get their state: see event.ReplaceEvent.
func (p *Plan) Source() string {
	if p.Replicated() {
		return event.FromReplica
	}
	return event.FromShadow
}

// Holder returns the rank in whose process the weights and the optimizer state of a lost rank are.
func (p *Plan) Holder(rank int, lost []int, shadows Shadows) (int, error) {
	if !p.Replicated() {
		h := shadows.Of(rank)
		switch {
		case h < 0:
			return 0, fmt.Errorf("%w: rank %d has no shadow: %s", ErrNoHolder, rank, shadows.Why)
		case slices.Contains(lost, h):
			return 0, fmt.Errorf("%w: rank %d is lost, and its shadow, which was with rank %d, too", ErrNoHolder, rank, h)
		}
		return h, nil
	}
	for _, other := range p.Twins(rank) {
		if other != rank && !slices.Contains(lost, other) {
			return other, nil
		}
	}
	return 0, fmt.Errorf("%w: all ranks with the weights of rank %d are lost: %s", ErrNoHolder, rank,
		words.Numbers(p.Twins(rank)))
}

// Keeps returns why an attempt can't be renewed after some ranks are lost; nil: it can be.
func (p *Plan) Keeps(lost []int, shadows Shadows) error {
	if err := p.CheckRenewal(); err != nil {
		return err
	}
	for _, rank := range lost {
		if _, err := p.Holder(rank, lost, shadows); err != nil {
			return err
		}
	}
	return nil
}

// rejoin gives an adopted stage the groups of another attempt.
func (p *Plan) rejoin(rank int, c actors.Compute, groups Groups) error {
	s, ok := c.(*stages.Stage)
	if !ok {
		return fmt.Errorf("rank %d: a %T cannot join other groups", rank, c)
	}
	o := p.optionsOf(rank, groups)
	return s.SetGroups(stages.RankGroups{Tensor: o.Tensor.Group, Context: o.Context.Group, Data: o.Data.Group, Experts: o.Experts.Group,
		ExpertCopies: o.Experts.Copies})
}
