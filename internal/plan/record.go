package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// dimGroup is a group along a dimension, for a dry run.
type dimGroup struct {
	tensorops.DryGroup
	dim grid.Dimension
}

func dryGroup(dim grid.Dimension, members int) tensorops.Group {
	return dryMember(dim, 0, members)
}

func dryMember(dim grid.Dimension, place, members int) tensorops.Group {
	return dimGroup{tensorops.DryGroup{Place: place, Members: members}, dim}
}

// DimensionOf returns the dimension of the group of an operation that Record shows.
func DimensionOf(g tensorops.Group) (dim grid.Dimension, ok bool) {
	d, ok := g.(dimGroup)
	return d.dim, ok
}

// Pass describes how a chunk's action is recorded. Actions with equal passes have the same operations.
type Pass struct {
	Type      scheduler.Type
	Recompute bool // the backward pass recomputes the activations
	HeadLater bool // the head's weight gradient is deferred
	Last      bool // the chunk's last microbatch in the step: replicas sum its gradients
}

// PassOf returns a function that describes how an action of a stage is recorded.
func (p *Plan) PassOf(stage int) func(a scheduler.Action) Pass {
	recomputes, headLater := p.Recomputes(), p.HeadLater()
	last := make(map[int32]int32) // by chunk: the microbatch whose gradients come last
	for _, a := range p.table.Ranks[stage] {
		if a.Type == scheduler.W || a.Type == scheduler.B {
			last[a.Chunk] = a.Microbatch
		}
	}
	return func(a scheduler.Action) Pass {
		return Pass{a.Type, recomputes(stage, int(a.Microbatch)), headLater(p.table.Microbatches, int(a.Microbatch)),
			last[a.Chunk] == a.Microbatch && p.microbatches() > 0}
	}
}

// Grouped reports whether there are groups of ranks besides the pipeline.
func (p *Plan) Grouped() bool { return p.grid.World() > p.table.NumRanks() }

// Record records the operations of a rank of a stage without computing them. It calls see for each kind of action that the
// row has for each chunk, and end for the norms of the gradients and the update.
func (p *Plan) Record(stage int, see func(chunk int, pass Pass, ops []tensorops.Op), end func(norms, update []tensorops.Op)) error {
	passOf := p.PassOf(stage)
	variants := make(map[Pass]bool) // without a type, and whether backwards are in two pieces
	inTwo := make(map[Pass]bool)
	for _, a := range p.table.Ranks[stage] {
		v := passOf(a)
		v.Type = scheduler.F
		variants[v] = true
		inTwo[v] = inTwo[v] || a.Type == scheduler.I
	}
	ended := false
	for v := range variants {
		for _, split := range []bool{false, true} {
			if split && !inTwo[v] {
				continue
			}
			var at func(norms, update []tensorops.Op)
			if !ended && (v.Last || p.microbatches() == 0) {
				at, ended = end, true
			}
			if err := p.recordPass(stage, v, split, see, at); err != nil {
				return fmt.Errorf("stage %d: %w", stage, err)
			}
		}
	}
	return nil
}

// recordPass records one microbatch through the chunks of a stage and back. If end is not nil, it also records
// the end of the step.
func (p *Plan) recordPass(stage int, v Pass, split bool, see func(int, Pass, []tensorops.Op),
	end func(norms, update []tensorops.Op)) (err error) {
	dry := tensorops.NewDryStream()
	st, err := stages.NewStage(p.model, dry, p.chunks[stage], p.dryOptions(stage, place{}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	b, t := p.cfg.Batch.Microbatch, p.cfg.Model.Context
	ids := make([]int32, b*t)
	mb := stages.Microbatch{Step: 1, Sequences: b, Positions: t, Tokens: ids, Targets: ids, Starts: p.starts(b * t), Train: true,
		Recompute: v.Recompute,
		HeadLater: v.HeadLater}
	if v.Last {
		mb.Of = 1
	}
	fields := p.model.Sample(b)
	record := func(i int, typ scheduler.Type) error {
		l, chunk := dry.NewList(), p.chunks[stage][i].Chunk
		act, own := scheduler.Action{Type: typ, Chunk: int32(chunk)}, mb
		for _, name := range st.Fields(chunk) {
			own.Fields = append(own.Fields, fields[name])
		}
		for _, t := range stages.Act(l, st, act, &own, p.inputs(l, st, act, true)...) {
			l.Free(t)
		}
		pass := v
		pass.Type = typ
		see(chunk, pass, l.Ops())
		return tensorops.Run(dry, l)
	}
	n := len(p.chunks[stage])
	types := []scheduler.Type{scheduler.B}
	if split {
		types = []scheduler.Type{scheduler.I, scheduler.W}
	}
	for i := range n {
		if err := record(i, scheduler.F); err != nil {
			return err
		}
	}
	for _, typ := range types {
		for i := n - 1; i >= 0; i-- {
			if err := record(i, typ); err != nil {
				return err
			}
		}
	}
	if end == nil {
		return nil
	}
	l := dry.NewList()
	for _, g := range st.MissingTied(l) {
		if err := st.TakeTied(g); err != nil {
			return err
		}
	}
	st.GradNorms(l)
	norms := slices.Clone(l.Ops())
	if err := tensorops.Run(dry, l); err != nil {
		return err
	}
	l = dry.NewList()
	st.Apply(l, stages.Update{Count: 1})
	end(norms, l.Ops())
	return tensorops.Run(dry, l)
}
