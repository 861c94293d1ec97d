package plan

import (
	"crypto/sha256"
	"fmt"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Stages is what the stages of a run need of its actors.Spec, in whatever process they
// are. evalTable is that of its validations, nil for none; load is where weights come
// from, with the optimizer's state where withState.
func (p *Plan) Stages(evalTable *scheduler.Table, load stages.Source, withState bool) actors.Spec {
	return actors.Spec{
		Build: func(rank int, s tensorops.Stream) (actors.Compute, error) {
			st, err := stages.NewStage(p.model, s, p.chunks[rank], p.StageOptions(rank))
			if err != nil {
				return nil, err
			}
			return st, st.Load(load, withState)
		},
		TiedRanks: p.EmbeddingRanks(), Routes: p.routes, Table: p.table, EvalTable: evalTable, MaxInFlight: p.DynamicBound(), PostValidate: p.cfg.Pipeline.PostValidation,
		Recompute: p.Recomputes(), HeadLater: p.HeadLater(),
	}
}

// TableText is the text of the user's own table; nil: the table was generated.
func (p *Plan) TableText() []byte { return p.text }

// Digest tells whether two processes have resolved a configuration alike: it is of the
// model, the layout and the table, down to every action.
func (p *Plan) Digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%+v\n%v\n%v\n%v\n%v\n", p.model.Config, p.layout, p.table.Placement, p.EmbeddingRanks(), p.routes)
	fmt.Fprintf(h, "%q\n", p.cfg.Model.Freeze)
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
