package plan

import (
	"crypto/sha256"
	"fmt"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Stages returns the part of an actors.Spec that the stages of a run need, in any process. evalMicrobatches is the number of
// microbatches of a validation; 0: no validation. The weights come from load, with the optimizer state if
// withState is set.
func (p *Plan) Stages(evalMicrobatches int, load stages.Source, withState bool, groups Groups) (actors.Spec, error) {
	return p.StagesFrom(evalMicrobatches, Loading{From: func(int) stages.Source { return load }, WithState: withState, Readers: 1}, groups)
}

// Loading says where the stages of a process get their numbers.
type Loading struct {
	From      func(rank int) stages.Source
	WithState bool // also the optimizer state
	Readers   int  // how many tensors a stage reads at a time
}

// StagesFrom is Stages with a source for each rank.
func (p *Plan) StagesFrom(evalMicrobatches int, load Loading, groups Groups) (actors.Spec, error) {
	replicas, err := p.replicas(evalMicrobatches)
	if err != nil {
		return actors.Spec{}, err
	}
	s := actors.Spec{
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			st, err := stages.NewStage(p.model, s, p.chunks[p.stageOf(rank)], p.optionsOf(rank, groups))
			if err != nil {
				return nil, err
			}
			return st, st.LoadSeveral(load.From(rank), load.WithState, load.Readers)
		},
		Load: func(rank int, c actors.Compute) error {
			st, ok := c.(*stages.Stage)
			if !ok {
				return fmt.Errorf("rank %d: a %T cannot be filled", rank, c)
			}
			return st.LoadSeveral(load.From(rank), load.WithState, load.Readers)
		},
		Rejoin: func(rank int, c actors.Compute) error { return p.rejoin(rank, c, groups) }, BuildShadow: p.buildShadow,
		TiedRanks: p.EmbeddingRanks(), Routes: p.routes, Table: p.table, EvalTable: replicas[0].EvalTable,
		PostValidate: p.cfg.Pipeline.PostValidation, Packed: p.Packed(),
		Recompute: p.Recomputes(), HeadLater: p.HeadLater(),
	}
	s.Readers, s.Holders = p.readers(), p.holders()
	if p.cfg.Cluster.Edge {
		s.Edge, s.EdgeParams = true, p.model.ParameterNames(p.chunks[0])
	}
	if p.grid.World() > p.table.NumRanks() {
		s.Grid, s.Replicas, s.SplitState, s.FailGroups, s.GroupStatus = p.grid, replicas, p.cfg.Parallel.Zero > 0, groups.Fail, groups.Status
		s.Slices, s.Way = p.sequence(), p.way()
		s.Experts = p.expertParam
		if p.cfg.Parallel.Zero == 0 {
			s.Copies = p.Twins
		}
		if n := p.grid.Positions(p.slices()); n > 1 {
			s.Multiple = n
		}
	}
	return s, nil
}

// replicas divides the microbatches of a step, and of a validation, into consecutive parts of almost equal length, the
// longer ones first.
func (p *Plan) replicas(evalMicrobatches int) ([]actors.Replica, error) {
	n := p.grid.Size(grid.Data)
	if p.cfg.MeetsInPasses() { // all replicas must meet equally often: some microbatches may be empty
		evalMicrobatches = (evalMicrobatches + n - 1) / n * n
	}
	all := make([]actors.Replica, n)
	total := p.cfg.Batch.Sequences / p.cfg.Batch.Microbatch
	for i := range all {
		r := &all[i]
		r.First, r.EvalFirst = before(i, n, total), before(i, n, evalMicrobatches)
		var err error
		if r.Table, err = p.tableOf(before(i+1, n, total) - r.First); err != nil {
			return nil, err
		}
		if m := before(i+1, n, evalMicrobatches) - r.EvalFirst; m > 0 {
			if r.EvalTable, err = p.EvalTable(m); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// before is the number of microbatches, of total, that the first i of n replicas have.
func before(i, n, total int) int { return i*(total/n) + min(i, total%n) }

// tableOf returns the table of a replica with a number of microbatches.
func (p *Plan) tableOf(microbatches int) (*scheduler.Table, error) {
	if microbatches == p.table.Microbatches {
		return p.table, nil
	}
	if p.text != nil {
		return nil, p.cfg.Errorf("parallel.data",
			"the table in pipeline.schedule has %s, but of the %d microbatches of a step a replica would have %d; choose sizes that divide evenly",
			words.Plural(p.table.Microbatches, "microbatch"), p.cfg.Batch.Sequences/p.cfg.Batch.Microbatch, microbatches)
	}
	s := p.spec
	s.Microbatches = microbatches
	t, err := scheduler.Generate(s)
	if err == nil {
		err = t.SetSkips(p.table.Skips)
	}
	if err != nil {
		return nil, p.cfg.Errorf("pipeline.schedule", "the table of a replica with %s: %w", words.Plural(microbatches, "microbatch"), err)
	}
	return t, nil
}

// TableText returns the text of the user's own table; nil: the table was generated.
func (p *Plan) TableText() []byte { return p.text }

// Digest returns a hash of the model, the layout and every action of the table. It is equal in two processes that have
// resolved the same plan.
func (p *Plan) Digest() [sha256.Size]byte {
	h := sha256.New()
	sizes := p.model.Config
	if sizes.Adapter != nil {
		fmt.Fprintf(h, "%+v\n", *sizes.Adapter)
		sizes.Adapter = nil // a pointer, which differs between processes
	}
	fmt.Fprintf(h, "%+v\n%v\n%v\n%v\n%v\n", sizes, p.layout, p.table.Placement, p.EmbeddingRanks(), p.routes)
	fmt.Fprintf(h, "%q\n", p.cfg.Model.Freeze)
	if l := p.cfg.PreferenceLoss(); l != nil {
		fmt.Fprintf(h, "%+v\n", *l)
	}
	if d := p.cfg.Distillation(); d != nil {
		fmt.Fprintf(h, "%+v\n", *d)
	}
	if p.grid.World() > p.table.NumRanks() {
		fmt.Fprintf(h, "%v %s %v %d %v %v %v\n", p.grid, p.grid.Order(), p.sequence(), p.cfg.Parallel.Zero, p.wholeGrads, p.holdWeights, p.way())
		fmt.Fprintf(h, "%d %v\n", p.grid.Size(grid.Expert), p.grid.WholeExperts())
	}
	if !p.model.Config.Language() { // its layers are the program's
		fmt.Fprintf(h, "%q\n", p.model.Names())
		for _, w := range p.model.Params {
			fmt.Fprintf(h, "%q %v %v %v\n", w.Name, w.Shape, w.Decay, w.Init)
		}
	}
	for _, row := range p.table.Ranks {
		fmt.Fprintf(h, "%v\n", row)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
