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

// Stages is what the stages of a run need of its actors.Spec, in whatever process they
// are. evalMicrobatches are those of a validation, 0: there is none; load is where weights come
// from, with the optimizer's state where withState.
func (p *Plan) Stages(evalMicrobatches int, load stages.Source, withState bool, groups Groups) (actors.Spec, error) {
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
			return st, st.Load(load, withState)
		},
		TiedRanks: p.EmbeddingRanks(), Routes: p.routes, Table: p.table, EvalTable: replicas[0].EvalTable,
		PostValidate: p.cfg.Pipeline.PostValidation,
		Recompute:    p.Recomputes(), HeadLater: p.HeadLater(),
	}
	s.Readers, s.Holders = p.readers(), p.holders()
	if p.cfg.Cluster.Edge {
		s.Edge, s.EdgeParams = true, p.model.ParameterNames(p.chunks[0])
	}
	if p.grid.World() > p.table.NumRanks() {
		s.Grid, s.Replicas, s.SplitState, s.FailGroups, s.GroupStatus = p.grid, replicas, p.cfg.Parallel.Zero > 0, groups.Fail, groups.Status
		s.Slices, s.Way = p.sequence(), p.way()
		if n := p.grid.Positions(p.slices()); n > 1 {
			s.Multiple = n
		}
	}
	return s, nil
}

// replicas share the microbatches of a step, and of a validation, in runs of almost equal length, the
// longer ones first.
func (p *Plan) replicas(evalMicrobatches int) ([]actors.Replica, error) {
	n := p.grid.Size(grid.Data)
	if p.cfg.SharesWeights() { // all gather as often: some microbatches may have no windows
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

// before is how many of total the first i of n have.
func before(i, n, total int) int { return i*(total/n) + min(i, total%n) }

// tableOf is the table of a replica with so many microbatches.
func (p *Plan) tableOf(microbatches int) (*scheduler.Table, error) {
	if microbatches == p.table.Microbatches {
		return p.table, nil
	}
	if p.text != nil {
		return nil, p.cfg.Errorf("parallel.data",
			"a table of one's own has %s, and of the step's %d a replica would have %d; choose sizes that divide",
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

// TableText is the text of the user's own table; nil: the table was generated.
func (p *Plan) TableText() []byte { return p.text }

// Digest tells whether two processes have resolved a configuration alike: it is of the
// model, the layout and the table, down to every action.
func (p *Plan) Digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%+v\n%v\n%v\n%v\n%v\n", p.model.Config, p.layout, p.table.Placement, p.EmbeddingRanks(), p.routes)
	fmt.Fprintf(h, "%q\n", p.cfg.Model.Freeze)
	if p.grid.World() > p.table.NumRanks() {
		fmt.Fprintf(h, "%v %s %v %d %v %v %v\n", p.grid, p.grid.Order(), p.sequence(), p.cfg.Parallel.Zero, p.wholeGrads, p.holdWeights, p.way())
	}
	if !p.model.Config.Language() { // whose layers are the program's
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
